"""Schedules: deterministic, of the asked shape, and sent at their moments whatever the answers do."""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.load import (
    Arrival,
    Bounds,
    Endpoint,
    Habits,
    Lengths,
    LoadError,
    Outcome,
    Pattern,
    Shape,
    Spec,
    Target,
    synthetic,
    traces,
)
from e2e.load.arrivals import Schedule, clip, cut, hasten, scale
from e2e.load.drive import Driver
from e2e.load.prompts import WORDS, Prompts
from e2e.load.spec import plan
from e2e.tests.load_fakes import Server

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319610,3180,0
2023-11-16 18:18:03.9799600,110,27
"""
MOONCAKE = """{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [7, 8]}

{"timestamp": 3052, "input_length": 600, "output_length": 9, "hash_ids": [7, 9]}
"""
TARGET = Target("http://127.0.0.1:1", "m")


def times(schedule: Schedule) -> list[float]:
    return [one.at for one in schedule]


@pytest.mark.parametrize("pattern", Pattern)
def test_equal_seeds_give_equal_schedules(pattern: Pattern) -> None:
    shape, lengths = Shape(pattern, rate=20), Lengths(200, 50, variation=0.5)
    first, again, other = (synthetic(shape, lengths, 60, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert times(first) == sorted(times(first))
    assert 0 <= first[0].at <= first[-1].at < 60
    assert min(min(one.prompt_tokens, one.output_tokens) for one in first) >= 1


@pytest.mark.parametrize(
    ("pattern", "variation", "because"),
    [
        (Pattern.CONSTANT, 0.0, "equal gaps"),
        (Pattern.POISSON, 1.0, "exponential gaps"),
        (Pattern.GAMMA, 3.0, "the asked burstiness"),
        (Pattern.SINUSOID, 1.53, "√(2/√(1 − swing²) − 1), by integrating over the wave"),
    ],
)
def test_a_shape_has_its_rate_and_burstiness(pattern: Pattern, variation: float, because: str) -> None:
    schedule = synthetic(Shape(pattern, rate=50, burstiness=3.0, period_seconds=20), Lengths(), 800, seed=3)
    gaps = [after - before for before, after in itertools.pairwise(times(schedule))]
    assert len(schedule) == pytest.approx(40_000, rel=0.05)
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(variation, rel=0.1, abs=0.001), because


def test_a_sinusoid_swings() -> None:
    shape = Shape(Pattern.SINUSOID, rate=100, period_seconds=40, swing=0.8)
    at = times(synthetic(shape, Lengths(), 400, seed=0))
    high = sum(moment % 40 < 20 for moment in at)
    assert high / len(at) == pytest.approx(0.5 + 0.8 / 3.1416, abs=0.02)  # the mean of a half wave is swing·2/π


def test_lengths_have_their_mean_and_spread() -> None:
    prompts = [one.prompt_tokens for one in synthetic(Shape(rate=100), Lengths(400, 50, variation=0.6), 300, seed=5)]
    assert statistics.fmean(prompts) == pytest.approx(400, rel=0.03)
    assert statistics.stdev(prompts) / statistics.fmean(prompts) == pytest.approx(0.6, rel=0.1)


@pytest.mark.parametrize("factor", [0.25, 1.0, 2.0, 2.5])
def test_scale_multiplies_arrivals_on_the_same_clock(factor: float) -> None:
    schedule = synthetic(Shape(rate=20), Lengths(), 200, seed=1)
    scaled = scale(schedule, factor, seed=1)
    assert len(scaled) == pytest.approx(factor * len(schedule), rel=0.1)
    assert times(scaled) == sorted(times(scaled))
    assert scaled[-1].at <= schedule[-1].at
    assert len(set(times(scaled))) == len(scaled), "copies do not share an instant"


def test_cutting_hastening_and_clipping() -> None:
    schedule = tuple(Arrival(float(at), 100 * at, 10 * at) for at in range(1, 6))
    assert times(cut(schedule, 2, 2)) == [0, 1]
    assert times(hasten(schedule, 2)) == [0.5, 1, 1.5, 2, 2.5]
    assert [(one.prompt_tokens, one.output_tokens) for one in clip(schedule, 250, None)][1:3] == [(200, 20), (250, 30)]


def test_azure_traces_count_from_their_first_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(AZURE)
    found = traces.read(tmp_path / "t.csv")
    assert times(found) == pytest.approx([0, 0.052001, 60], abs=1e-6)
    assert [(one.prompt_tokens, one.output_tokens) for one in found] == [(4808, 10), (3180, 1), (110, 27)]


def test_mooncake_traces_keep_their_blocks(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(MOONCAKE)
    found = traces.read(tmp_path / "t.jsonl")
    assert found == (Arrival(0.0, 700, 5, (7, 8)), Arrival(3.052, 600, 9, (7, 9)))


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_our_own_traces_are_sorted(name: str, tmp_path: Path) -> None:
    text = {
        "own.csv": "at,prompt_tokens,output_tokens\n2.5,10,3\n1,20,4\n",
        "own.jsonl": '{"at": 2.5, "prompt_tokens": 10, "output_tokens": 3}\n{"at": 1, "prompt_tokens": 20, "output_tokens": 4}\n',
    }
    (tmp_path / name).write_text(text[name])
    assert traces.read(tmp_path / name) == (Arrival(1, 20, 4), Arrival(2.5, 10, 3))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("t.csv", "at,prompt_tokens,output_tokens\n", "holds no requests"),
        ("t.csv", "when,what\n1,2\n", "when, what, which no reader knows"),
        ("t.csv", "at,prompt_tokens,output_tokens\n1,2,3\n1,x,3\n", "line 3: .*'x'"),
        ("t.csv", "at,prompt_tokens,output_tokens\n1,2\n", "line 2"),
        ("t.csv", "at,prompt_tokens,output_tokens\n-1,2,3\n", "line 2: the time -1.0"),
        ("t.csv", "at,prompt_tokens,output_tokens\nnan,2,3\n", "line 2: the time nan"),
        ("t.csv", "at,prompt_tokens,output_tokens\n1,-2,3\n", "below 0"),
        ("t.csv", AZURE + "yesterday,1,2\n", "line 5"),
        (
            "t.jsonl",
            '{"at": 1, "prompt_tokens": 1, "output_tokens": 1}\n{"at": 1}\n',
            "line 2: 'prompt_tokens' is missing",
        ),
        ("t.jsonl", "[1]\n", "line 1: not an object"),
        ("t.jsonl", "{\n", "line 1: not JSON"),
    ],
)
def test_a_bad_trace_is_refused_by_line(name: str, text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(LoadError, match=says):
        traces.read(tmp_path / name)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Shape(rate=0), "rate is 0"),
        (lambda: Shape(swing=1.5), "swing is 1.5"),
        (lambda: Lengths(prompt_tokens=0), "at least 1"),
        (lambda: scale((), 0, 0), "scale is 0"),
        (lambda: hasten((), float("inf")), "speed is inf"),
        (lambda: Bounds(silence=0), "silence is 0"),
        (lambda: Habits(cancel_fraction=2), "cancel_fraction is 2"),
        (lambda: Target("ftp://h:1", "m"), "url is"),
        (lambda: Target("http://h:port", "m"), "url is"),
        (lambda: Spec(TARGET, ()), "schedule is empty"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, says: str) -> None:
    with pytest.raises(LoadError, match=says):
        make()  # type: ignore[operator]


@given(
    number=st.integers(0, 1 << 20),
    tokens=st.integers(1, 3000),
    blocks=st.lists(st.integers(0, 200_000), max_size=4),
)
@settings(max_examples=60)
def test_a_prompt_has_its_length_in_words(number: int, tokens: int, blocks: list[int]) -> None:
    text = Prompts(TARGET, seed=1).text(number, Arrival(0, tokens, 1, tuple(blocks)))
    assert len(text.split(" ")) == tokens
    assert set(text.split(" ")) <= set(WORDS)
    assert text == Prompts(TARGET, seed=1).text(number, Arrival(9, tokens, 5, tuple(blocks))), "time does not change it"


def test_prompts_share_exactly_their_blocks() -> None:
    prompts = Prompts(TARGET, seed=1)
    first, second = (prompts.text(n, Arrival(0, 1500, 1, (7, n, 5))).split(" ") for n in (100, 101))
    assert first[:512] == second[:512], "block 7"
    assert first[512:516] != second[512:516], "the first words after it differ already"
    assert first[1024:] == second[1024:], "block 5"


def test_prompts_of_different_requests_differ_from_the_first_words_on() -> None:
    prompts = Prompts(TARGET, seed=1)
    heads = {" ".join(prompts.text(n, Arrival(0, 50, 1)).split(" ")[:4]) for n in range(5000)}
    assert len(heads) == 5000


@pytest.mark.parametrize("endpoint", Endpoint)
def test_bodies_ask_for_a_stream_of_the_wanted_length(endpoint: Endpoint) -> None:
    import json

    target = Target("http://h:1/v1/", 'mo"del', endpoint, {"ignore_eos": True})
    body = json.loads(Prompts(target, 0).body(3, Arrival(0, 20, 7)))
    assert body["model"] == 'mo"del'
    assert body["max_tokens"] == 7
    assert body["ignore_eos"] is True
    assert body["stream_options"] == {"include_usage": True}
    prompt = body["prompt"] if endpoint is Endpoint.COMPLETIONS else body["messages"][0]["content"]
    assert len(prompt.split()) == 20
    assert target.path in ("/v1/completions", "/v1/chat/completions")


def test_habits_are_drawn_per_request() -> None:
    schedule = synthetic(Shape(rate=100), Lengths(), 50, seed=0)
    some, more = (plan(Spec(TARGET, schedule, habits=Habits(share, share / 2))) for share in (0.2, 0.4))
    assert sum(one.leave_after is not None for one in some) == pytest.approx(0.2 * len(schedule), rel=0.1)
    assert sum(one.slow for one in some) == pytest.approx(0.1 * len(schedule), rel=0.15)
    assert {one.index for one in some if one.slow} <= {one.index for one in more if one.slow}
    assert {one.index: one.leave_after for one in some if one.leave_after is not None}.items() <= {
        one.index: one.leave_after for one in more
    }.items(), "a larger fraction adds clients that leave, and changes none"


def test_requests_go_out_at_their_moments_though_nobody_answers() -> None:
    async def run() -> Schedule:
        server = Server(["never answers"] * 60)
        async with server.serving() as url:
            schedule = synthetic(Shape(rate=150), Lengths(5, 3), 0.4, seed=4)[:60]
            spec = Spec(Target(url, "m"), schedule, bounds=Bounds(10, 2))
            records, _ = await Driver(spec, plan(spec), "127.0.0.1").run(time.monotonic())
        ordered = sorted(records, key=lambda one: one.index)
        sent = [one.sent for one in ordered if one.sent is not None]
        assert [one.scheduled for one in ordered] == times(schedule), "to the last bit"
        assert all(moment >= one.scheduled for moment, one in zip(sent, ordered, strict=True)), "never early"
        assert max(sent) < min(one.ended or 0.0 for one in ordered), "all were sent before the first had ended"
        assert {one.outcome for one in ordered} == {Outcome.HUNG}
        assert len(server.asked) == len(schedule)
        return schedule

    assert len(uvloop.run(run())) > 30
