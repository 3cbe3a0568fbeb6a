"""The measured vLLM runs: what is fitted on one half of the requests holds on the other."""

import pytest
from bench.evidence import vllm


@pytest.mark.parametrize("run", vllm.RUNS, ids=[run.name for run in vllm.RUNS])
def test_a_run_is_read_whole(run):
    arrivals, times = vllm.measured(run)
    assert len(arrivals) == len(times) == 300
    assert [a.at for a in arrivals] == sorted(a.at for a in arrivals)
    assert min(time.ttft for time in times) > 0
    ours = vllm.simulated(run, arrivals, vllm.prior(run))
    assert len(ours) == 300, "every request is served"


def test_a_fit_on_the_even_requests_holds_on_the_odd_ones():
    run = vllm.RUNS[1]
    arrivals, truth = vllm.measured(run)
    before = vllm.errors(vllm.simulated(run, arrivals, vllm.prior(run))[1::2], truth[1::2])
    after = vllm.errors(vllm.simulated(run, arrivals, vllm.calibrated(run, slice(0, None, 2)))[1::2], truth[1::2])
    assert vllm.over(after) <= 1
    assert vllm.over(after) < vllm.over(before)


@pytest.mark.parametrize(
    ("found", "worst"),
    [
        ({"ttft_mean": 0.01, "ttft_p99": -0.05, "tpot_mean": 0.0, "tpot_p99": 0.0}, 0.5),
        ({"ttft_mean": -0.05, "ttft_p99": 0.0, "tpot_mean": 0.0, "tpot_p99": 0.0}, 1.0),
    ],
)
def test_errors_are_judged_by_their_own_limits(found, worst):
    assert vllm.over(found) == pytest.approx(worst)
