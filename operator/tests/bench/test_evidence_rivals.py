"""The law beside its rivals: how runs are summed up, what hindsight finds, and what is taken out of the law."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random

import pytest
from bench.evidence import (
    ablation,
    agreement,
    blocks_autoscaler,
    blocks_policies,
    fluid,
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
from bench.evidence.settings import BUDGET, Setting, alternating
from bench.evidence.sizes import Size, cheapest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.decide.queue.judge import Objectives
from steelyard.sim import fluid as liquid
from steelyard.sim.flow import Flow, Lengths
from steelyard.sim.policies.choose import choose
from steelyard.sim.policies.policy import Static
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
        (((0.96, 0.9), (0.97, 0.9)), ["best single setting", "tuned on a", "tuned on b"], "as good everywhere for fewer hours"),
        (((0.955, 0.9), (0.955, 0.9)), ["best single setting", "tuned on a", "tuned on b"], "all that is wanted"),
        (((0.96, 0.9), (0.94, 0.9)), [], "below what is wanted on b, where it was not tuned"),
        (((0.94, 0.9), (0.96, 0.9)), [], "and on a"),
        (((0.99, 1.1), (0.99, 1.0)), [], "better, but dearer"),
    ],
)  # fmt: skip
def test_a_rival_beats_the_law_where_it_is_as_good_for_fewer_hours(cheap, beaten, because):
    rows = runs(((0.5, 9.0), (0.5, 9.0)), cheap)
    assert [one["how"] for one in standing.beating(standing.lines(rows, TRACES))] == beaten, because


@pytest.mark.parametrize(
    ("law", "static", "beaten", "because"),
    [
        (((0.96, 1.0), (0.97, 1.0)), ((0.95, 0.9), (0.96, 0.9)), True, "what is wanted, for fewer hours"),
        (((0.96, 1.0), (0.97, 1.0)), ((0.94, 0.9), (0.96, 0.9)), False, "less than what is wanted"),
        (((0.93, 1.0), (0.97, 1.0)), ((0.94, 0.9), (0.96, 0.9)), True, "the law attains less itself"),
        (((0.93, 1.0), (0.97, 1.0)), ((0.94, 1.1), (0.96, 0.9)), False, "as many hours"),
    ],
)
def test_fixed_sizes_of_hindsight_beat_the_law_too(law, static, beaten, because):
    fixed = [made(load, f"static={place}:1", *static[place]) for place, load in enumerate("ab")]
    found = standing.lines([*runs(((0.5, 9.0), (0.5, 9.0)), ((0.5, 9.0), (0.5, 9.0)), law), *fixed], TRACES)
    assert [one["how"] for one in standing.beating(found)] == ["in hindsight"] * beaten, because


@pytest.mark.parametrize(
    ("cheap", "said"), [((0.96, 0.9), "**The law is beaten**"), ((0.90, 0.9), "Nobody attains 0.95")]
)
def test_a_page_tells_of_losses(cheap, said):
    rows = standing.lines(runs(((0.5, 9.0), (0.5, 9.0)), (cheap, (0.96, 0.9))), TRACES)
    found = {"routers": {"wspt": rows}, "holdout": {"wspt": rows[0]}}
    text = blocks_policies.policies(found)
    assert "ours on the hold-out loads" in text
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


def test_every_draw_of_every_start_is_told(monkeypatch):
    """Draws differ, each is set against the oracle of its own arrivals, and the first is the one in full."""
    monkeypatch.setattr(robustness.startups, "SEEDS", (0, 1))
    load = replace(short(), arrivals=lambda seed: short(gap=0.1 + seed).arrivals(0))
    [row] = robustness.starts({"ours": "ours"}, [load], (10.0,))
    assert (row["start"], row["policy"]) == (10.0, "ours")
    first, second = row["draws"]
    assert first.items() <= row.items()
    assert first["accelerator_hours"] != second["accelerator_hours"]
    assert first["over_oracle"] >= 1 <= second["over_oracle"]
    assert f"{second['lowest']:.3f}" in blocks_autoscaler.three_draws([row])


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


@given(st.integers(1, 6), st.integers(1, 9), st.floats(0, 60), st.floats(0, 20))
def test_no_neighbour_of_the_size_that_is_found_is_cheaper(least_prefill, least_decode, work, further):
    """Prefill that is short of decode needs more, the less decode there is."""
    least, most = Size(least_prefill, least_decode), Size(40, 40)

    def attained(size):
        return 1.0 if size.prefill >= further + work / size.decode else 0.5

    found = cheapest(attained, 1.0, least, most)
    every = [
        Size(p, d) for p in range(least_prefill, 41) for d in range(least_decode, 41) if attained(Size(p, d)) == 1.0
    ]
    assert found in every
    assert sum(found) <= min(sum(size) for size in every if size.decode <= found.decode + 1)
    assert cheapest(lambda size: 0.5, 1.0, least, most) is None


@pytest.mark.parametrize(("rate", "answer"), [(8.0, 60), (20.0, 900)])
def test_hindsight_finds_the_cheapest_of_all_fixed_sizes_in_rates_too(rate, answer):
    flow = Flow([(0.0, rate / 2), (150.0, rate), (200.0, rate / 3)], 300.0, Lengths.of([(3000, answer), (500, answer)]))
    every = {
        f"static={p}:{d}": liquid.play(fluid.scenario(flow, {PREFILL: p, DECODE: d}), flow, Static())
        for p in range(1, 9)
        for d in range(1, 5)
    }
    enough = {
        policy: result.accelerator_hours for policy, result in every.items() if result.attainment >= rivals.WANTED
    }
    found = fluid.hindsight(flow)
    assert 0 < len(enough) < len(every)
    assert found is not None
    assert enough[found[0]] == min(enough.values())


def test_the_oracle_must_be_below_the_law_on_every_load(monkeypatch):
    monkeypatch.setattr(oracle, "TRACES", TRACES)
    paid = play(TRACES[0], rivals.LAW)["accelerator_hours"]
    for second, ok in ((0.9, True), (1.1, False)):
        bounds = {"a": paid / 3, "b": paid * second}
        monkeypatch.setattr(oracle, "bound", lambda setting, share, bounds=bounds: bounds[setting.name])
        assert oracle.distance()["ok"] is ok


@pytest.mark.parametrize(
    ("requests", "rates", "judged", "ok"),
    [
        ([0.95, 3.0], [0.92, 3.2], [True, True], True),
        ([0.95, 3.0], [0.90, 3.2], [True, True], False),
        ([0.95, 3.0], [0.95, 3.4], [True, True], False),
        ([0.80, 3.0], [0.95, 3.0], [False, True], True),
        ([0.95, 1.0], [0.95, 2.0], [True, False], True),
    ],
)
def test_what_rates_and_requests_say_is_judged_where_both_can_know(requests, rates, judged, ok):
    fine = {"load": "a", "policy": "b", "requests": [0.99, 4.0], "rates": [0.98, 4.1]}
    found = agreement.judged([fine, {**fine, "requests": requests, "rates": rates}])
    assert found["rows"][1]["judged"] == judged
    assert found["ok"] is ok
    told = blocks_autoscaler.fluid({"rows": [], "agreement": found})
    assert told.count("(") - told.count("(fluid.svg") == judged.count(False), "in brackets what is not judged"


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


def bursts():
    """Four minutes of bursts of mixed prompts, some with long answers, from too large a size."""
    random, at, found = Random(0), 0.0, []
    while at < 240:
        at += random.expovariate(0.25)
        found += [
            Arrival(at + 0.02 * n, random.choice((1500, 3000, 6000)), random.choice((50, 2500)))
            for n in range(random.randrange(2, 14))
        ]
    return sorted(found, key=lambda one: one.at)


# On one of them every part shows, but the one of which the page says that it changes almost nothing.
SMALL = (
    replace(short(), arrivals=lambda seed: bursts(), initial={PREFILL: 5, DECODE: 2}, startup=10.0),
    replace(short(), arrivals=lambda seed: alternating(30, 240, 2), initial={PREFILL: 7, DECODE: 7}, startup=10.0),
)
HARDLY_SEEN = "bursts ask for more than is kept though it loses nothing"


@cache
def small_as_it_is(place):
    return play(SMALL[place], rivals.LAW)


@pytest.mark.parametrize("name", [name for name, part in ablation.PARTS.items() if part])
def test_a_part_that_is_taken_out_changes_what_the_law_does_and_is_put_back(name):
    part = ablation.PARTS[name]
    before = [getattr(owner, constant) for owner, constant, _ in part]
    whole = [small_as_it_is(place) for place in range(len(SMALL))]
    with ablation.without(part):
        changed = any(play(load, rivals.LAW) != found for load, found in zip(SMALL, whole, strict=True))
    assert changed or name == HARDLY_SEEN
    assert [getattr(owner, constant) for owner, constant, _ in part] == before
    assert play(SMALL[0], rivals.LAW) == whole[0]


@pytest.mark.parametrize("load", holdout.LOADS[:3], ids=lambda load: load.name)
def test_other_slices_of_servegen_are_other_loads(load):
    arrivals = load.arrivals(0)
    assert len(arrivals) > 10_000
    assert all(before.at <= after.at for before, after in pairwise(arrivals))
    assert 890 < arrivals[-1].at < 900
