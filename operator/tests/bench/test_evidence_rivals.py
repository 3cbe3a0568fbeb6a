"""The law beside its rivals: how runs are summed up, what hindsight finds, and what is taken out of the law."""

from dataclasses import replace
from itertools import pairwise

import pytest
from bench.evidence import (
    ablation,
    blocks_policies,
    holdout,
    oracle,
    parallel,
    plots_of,
    rivals,
    robustness,
    standing,
    startups,
)
from bench.evidence.engines import CLASS_32B
from bench.evidence.playing import play
from bench.evidence.settings import BUDGET, Setting
from steelyard.decide.queue.judge import Objectives
from steelyard.sim.policies.choose import choose
from steelyard.sim.requests import Arrival
from steelyard.sim.scenario import DECODE, PREFILL, Routing


def short(name="short", gap=0.1, prompt=3000, answer=60):
    """Half a minute of equal requests."""
    arrivals = [Arrival(n * gap, prompt, answer) for n in range(round(30 / gap))]
    return Setting(name, lambda seed: arrivals, CLASS_32B, Objectives(2.0, 0.05), {PREFILL: 4, DECODE: 2}, startup=5.0)


# --- several processes


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_calls_answer_in_their_order_however_many_run_at_once(monkeypatch, jobs):
    monkeypatch.setenv(parallel.JOBS, jobs)
    assert parallel.each([lambda n=n: n * n for n in range(7)]) == [n * n for n in range(7)]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_a_call_raises_is_raised_here(monkeypatch, jobs):
    monkeypatch.setenv(parallel.JOBS, jobs)
    with pytest.raises(ZeroDivisionError):
        parallel.each([lambda: 1 / 0, lambda: 1])


@pytest.mark.parametrize("said", ["0", "-1", "many", ""])
def test_a_number_of_processes_that_makes_no_sense_is_refused(monkeypatch, said):
    monkeypatch.setenv(parallel.JOBS, said)
    with pytest.raises(ValueError, match=parallel.JOBS):
        parallel.each([int, int])


# --- settings


@pytest.mark.parametrize("name", rivals.SPACE)
def test_settings_are_the_same_for_everybody_and_can_be_played(name):
    setting = short()
    told = setting.told(setting.scenario(), BUDGET)
    found = rivals.settings(name)
    assert found == rivals.settings(name)
    assert found[:2] == rivals.settings(name, 2)
    assert len(found) == len(set(found)) > rivals.SETTINGS / 2, "what was drawn twice would be counted twice"
    for text in found:
        assert choose(text, CLASS_32B, told).make() is not None


# --- summing up


def made(load, policy, attainment, hours):
    """A run."""
    return {"load": load, "policy": policy, "attainment": attainment, "accelerator_hours": hours, "worst_wait": 1.0,
            "role_changes_per_minute": 0.0, "quarters": [attainment] * 4}  # fmt: skip


TRACES = (short("a"), short("b"))


def runs(dear, cheap, law=((0.96, 1.0), (0.97, 1.0))):
    """A law and one rival with two settings on two traces; of the others one setting that reaches nothing."""
    rows = [made(load, rivals.LAW, *law[place]) for place, load in enumerate("ab")]
    for name in rivals.SPACE:
        for text, figures in (("dear", dear), ("cheap", cheap)):
            used = figures if name == "hpa-queue" else ((0.5, 9.0), (0.5, 9.0))
            rows += [made(load, f"{name},{text}", *used[place]) for place, load in enumerate("ab")]
    return rows


@pytest.mark.parametrize(
    ("dear", "cheap", "single", "tuned", "carried", "because"),
    [
        (((0.99, 3.0), (0.99, 3.0)), ((0.96, 2.0), (0.90, 1.0)), "dear", [[0.96, 2.0], [0.99, 3.0]], [[0.9, 3.0], [0.99, 6.0]],
         "cheap fails on b: alone it is best on a only"),
        (((0.99, 3.0), (0.99, 3.0)), ((0.96, 2.0), (0.95, 1.0)), "cheap", [[0.96, 2.0], [0.95, 1.0]], [[0.95, 3.0], [0.96, 3.0]],
         "more than what is wanted is worth nothing"),
        (((0.90, 3.0), (0.80, 3.0)), ((0.70, 2.0), (0.85, 1.0)), "dear", [None, None], [],
         "nobody reaches it: the highest of the lowest"),
    ],
)  # fmt: skip
def test_a_rival_is_summed_up_by_what_is_known(dear, cheap, single, tuned, carried, because):
    line = next(line for line in standing.lines(runs(dear, cheap), TRACES) if line["policy"].startswith("hpa-queue"))
    assert line["setting"] == f"hpa-queue,{single}", because
    assert list(line["tuned_on_each"].values()) == tuned, because
    assert [[one["lowest"], one["accelerator_hours"]] for one in line["carried"]] == carried, because


@pytest.mark.parametrize(
    ("cheap", "beaten", "because"),
    [
        (((0.96, 0.9), (0.97, 0.9)), 2, "as good on the others for fewer hours, from either trace"),
        (((0.96, 0.9), (0.95, 0.9)), 1, "tuned on b it is as good on a"),
        (((0.955, 0.9), (0.955, 0.9)), 0, "fewer hours, but below the law's lowest"),
        (((0.99, 1.1), (0.99, 1.0)), 0, "better, but dearer"),
    ],
)
def test_a_rival_beats_the_law_where_it_is_as_good_for_fewer_hours(cheap, beaten, because):
    rows = runs(((0.5, 9.0), (0.5, 9.0)), cheap)
    assert len(standing.beating(standing.lines(rows, TRACES))) == beaten, because


@pytest.mark.parametrize(
    ("cheap", "said"), [((0.96, 0.9), "**The law is beaten**"), ((0.90, 0.9), "No setting that was tuned")]
)
def test_a_page_tells_of_losses(cheap, said):
    rows = standing.lines(runs(((0.5, 9.0), (0.5, 9.0)), (cheap, (0.96, 0.9))), TRACES)
    found = {"routers": {"wspt": rows}, "beaten_by": {"wspt": standing.beating(rows)}}
    text = blocks_policies.policies(found)
    assert said in text
    assert "Behind Dynamo's queue" in text
    assert text.count("\n| hpa-queue") == 4, "single, who waits, tuned, carried"
    assert "<svg" in plots_of.policies(found)


@pytest.mark.parametrize(
    ("rival", "beaten"), [((0.97, 0.9), [[10.0, "x"]]), ((0.97, 1.1), []), ((0.95, 0.9), []), ((0.96, 0.9), [])]
)
def test_with_one_setting_the_law_is_beaten_in_both_figures_or_not_at_all(rival, beaten):
    rows = [
        {"start": seconds, "policy": name, "lowest": lowest, "accelerator_hours": hours}
        for seconds in (10.0, 60.0)
        for name, (lowest, hours) in (("ours", (0.96, 1.0)), ("x", rival if seconds == 10.0 else (0.5, 2.0)))
    ]
    assert robustness.beating(rows, "start") == beaten


def test_settings_that_were_never_found_are_asked_for():
    with pytest.raises(ValueError, match="ONLY=frontier"):
        robustness.defaults({})


@pytest.mark.parametrize(
    ("rows", "nearest", "because"),
    [
        (
            [("a", 0.96, 9.0), ("b", 0.951, 5.0), ("c", 0.94, 1.0)],
            "b",
            "the cheapest of those that reach what is wanted",
        ),
        ([("a", 0.80, 9.0), ("b", 0.70, 5.0)], "a", "where none does, the one that fails least"),
    ],
)
def test_the_rival_that_comes_nearest(rows, nearest, because):
    kept = [
        {"policy": name, "setting": f"{name},x=1", "lowest": low, "accelerator_hours": hours}
        for name, low, hours in rows
    ]
    figures = {"frontier": {"rows": [{"policy": "ours", "lowest": 0.96, "accelerator_hours": 1.0}, *kept]}}
    assert robustness.nearest(figures) == nearest, because
    assert robustness.defaults(figures) == {"ours": "ours"} | {name: f"{name},x=1" for name, _, _ in rows}


# --- runs


def test_hindsight_finds_the_cheapest_of_all_fixed_sizes():
    setting = short(gap=0.05)
    every = [play(setting, f"static={p}:{d}") for p in range(1, 9) for d in range(1, 4)]
    enough = [row for row in every if row["attainment"] >= rivals.WANTED]
    found = rivals.hindsight(setting, Routing.GATEWAY)
    assert enough
    assert found is not None
    assert found["policy"] == min(enough, key=lambda row: row["accelerator_hours"])["policy"]


def test_no_fixed_size_is_below_the_mean_need():
    setting = short(gap=0.05)
    found = rivals.hindsight(setting, Routing.GATEWAY)
    assert found is not None
    prefill, decode = map(int, found["policy"].partition("=")[2].split(":"))
    mean = oracle.mean_needs(setting, rivals.WANTED)
    assert 1 < mean[PREFILL] <= prefill
    assert 0 < mean[DECODE] <= decode


def test_draws_are_averaged_and_the_worst_is_told():
    setting = short()
    most = setting.arrivals(0)
    drawn = replace(setting, arrivals=lambda seed: most if seed else most[: len(most) // 3])
    both = startups.row(drawn, (0, 1))
    alone = [startups.row(drawn, (seed,)) for seed in (0, 1)]
    assert both["accelerator_hours"] == pytest.approx(sum(row["accelerator_hours"] for row in alone) / 2, abs=0.001)
    assert both["worst_draw"] == min(row["attainment"] for row in alone)
    assert both["over_oracle"] >= 1


@pytest.mark.parametrize("name", ablation.PARTS)
def test_a_part_that_is_taken_out_is_put_back(name):
    part = ablation.PARTS[name]
    before = [getattr(owner, constant) for owner, constant, _ in part]
    with ablation.without(part):
        row = play(short(), rivals.LAW)
        assert [getattr(owner, constant) for owner, constant, _ in part] == [value for _, _, value in part]
    assert [getattr(owner, constant) for owner, constant, _ in part] == before
    assert 0 <= row["attainment"] <= 1


@pytest.mark.parametrize("load", holdout.LOADS[:3], ids=lambda load: load.name)
def test_other_slices_of_servegen_are_other_loads(load):
    arrivals = load.arrivals(0)
    assert len(arrivals) > 10_000
    assert all(before.at <= after.at for before, after in pairwise(arrivals))
    assert 890 < arrivals[-1].at < 900
