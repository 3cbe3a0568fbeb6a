"""The simulator's parts against brute force and small tables."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_worlds import SMALL, scenario
from steelyard.sim.engine import Batching, Engine
from steelyard.sim.histogram import Histogram
from steelyard.sim.plots import Axis, Series, plot
from steelyard.sim.prefix import PrefixCache
from steelyard.sim.requests import Arrival
from steelyard.sim.run import simulate
from steelyard.sim.scenario import Routing
from steelyard.sim.stretch import Stretch
from steelyard.sim.world import World

ENGINES = [
    SMALL,
    Engine(prefill=(0.01, 1e-4, 0.0), decode=(5.74e-3, 54.01e-3, -25.74e-3, 0.0), kv_tokens=524_288, block_tokens=64),
    Engine(
        prefill=(0.01, 1e-4, 0.0),
        decode=(0.02, 0.0, 0.0, 1e-4),
        kv_tokens=10_000,
        wide=(0.01, 0.0, 0.0, 2e-4),
        wide_from=4,
    ),
]


@given(st.sampled_from(ENGINES), st.integers(1, 8), st.integers(0, 2000), st.integers(1, 200))
def test_a_stretch_takes_as_long_as_its_steps(engine, sequences, kv, steps):
    stretch = Stretch(engine, sequences, kv, steps)
    one_by_one = sum(engine.step_seconds(sequences, kv + sequences * step) for step in range(steps))
    assert stretch.seconds(steps) == pytest.approx(one_by_one, rel=1e-9)


@given(st.sampled_from(ENGINES), st.integers(1, 8), st.integers(0, 2000), st.integers(1, 400), st.floats(0, 1.5))
def test_steps_are_counted_as_a_loop_would(engine, sequences, kv, steps, share):
    stretch = Stretch(engine, sequences, kv, steps)
    elapsed = share * stretch.seconds(steps)
    over = [step for step in range(steps + 1) if stretch.seconds(step) <= elapsed + 1e-9]
    assert stretch.steps_within(elapsed) == max(over)
    enough = [step for step in range(steps + 1) if stretch.seconds(step) >= elapsed - 1e-9]
    assert stretch.steps_until(elapsed) == (min(enough) if enough else steps)


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_percentiles_are_within_half_a_percent(values, share):
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    ranked = sorted(values)
    exact = next(v for i, v in enumerate(ranked, start=1) if i >= share * len(values))
    assert histogram.percentile(share) == pytest.approx(exact, rel=0.005)
    assert histogram.mean == pytest.approx(sum(values) / len(values))
    assert histogram.cumulative()[-1][1] == 1.0


def test_values_that_are_missing_count_as_infinite():
    histogram = Histogram()
    for value in (1.0, 2.0):
        histogram.add(value)
    assert histogram.percentile(0.99, of=4) == float("inf")
    assert Histogram().percentile(0.5) is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("kv_tokens", 0, "engine.kv_tokens is 0; it must be at least 1"),
        ("prefill", (0.0, 0.0, 0.0), "a and b both zero"),
        ("decode", (0.0, 0.0, 0.0, 0.0), "engine.decode"),
        ("decode", (0.01, -0.02, 0.0, 0.0), "engine.decode"),
        ("transfer", (-1.0, 0.0), "engine.transfer"),
    ],
)
def test_impossible_engines_are_refused(field, value, words):
    figures = {"prefill": SMALL.prefill, "decode": SMALL.decode, "kv_tokens": 1000, field: value}
    with pytest.raises(ValueError, match=words):
        Engine(**figures)


def test_slots_are_the_most_that_keep_the_objective():
    slots = SMALL.slots(100, 0.0125)
    assert SMALL.step_seconds(slots, slots * 100) <= 0.0125
    assert slots == SMALL.max_sequences or SMALL.step_seconds(slots + 1, (slots + 1) * 100) > 0.0125


def test_a_prefix_cache_forgets_what_was_used_longest_ago():
    cache = PrefixCache(3 * 512, 512)
    cache.insert((1, 2, 3))
    assert cache.hit((1, 2, 9)) == 1024
    cache.insert((4,))  # 3 goes: 1 and 2 were used since
    assert cache.hit((1, 2, 3)) == 1024
    assert cache.hit((3,)) == 0


def test_a_cached_beginning_shortens_prefill_where_it_lies():
    arrivals = [Arrival(0.0, 1024, 2, 0, (1, 2)), Arrival(5.0, 1024, 2, 0, (1, 2))]
    cold = simulate(scenario(2, 1), arrivals).record.ttft
    warm = simulate(scenario(2, 1, prefix_cache_tokens=4096), arrivals).record.ttft
    assert warm.total < cold.total - 0.05, "the second prompt computes one token instead of 1024"


def passes_of(batching: Batching, max_wait: float = 0.05) -> World:
    engine = Engine(
        prefill=(0.01, 1e-4, 0.0), decode=(0.01, 0.0, 0.0, 0.0), kv_tokens=10_000, batch_tokens=512, max_sequences=4,
        batching=batching, max_wait_seconds=max_wait,
    )  # fmt: skip
    world = World(scenario(aggregated=1, engine=engine, routing=Routing.LEAST_LOADED))
    world.run([Arrival(0.0, 100, 50), Arrival(0.2, 100, 50)])
    return world


def test_batching_strategies_differ_as_their_names_say():
    chunked, whole, static, dynamic = (passes_of(strategy) for strategy in Batching)
    assert static.record.ttft.greatest > 0.3, "the second waits for the first batch to end"
    assert chunked.record.ttft.greatest < 0.1, "the second joins at the next pass"
    assert whole.record.ttft.greatest < 0.1
    assert whole.record.tpot.greatest < chunked.record.tpot.greatest * 1.5
    waited = passes_of(Batching.DYNAMIC, max_wait=0.3)
    assert waited.record.ttft.greatest >= 0.3, "the first waits for company"
    assert waited.now < static.now, "and then both run as one batch"
    assert dynamic.record.completed == 2


def test_chunks_share_a_pass_with_decode_and_whole_prompts_stall_it():
    long = [Arrival(0.0, 10, 100), Arrival(0.1, 1500, 2)]
    gaps = {}
    for strategy in (Batching.CHUNKED, Batching.CONTINUOUS):
        engine = Engine(
            prefill=(0.01, 1e-4, 0.0),
            decode=(0.01, 0.0, 0.0, 0.0),
            kv_tokens=10_000,
            batch_tokens=256,
            batching=strategy,
        )
        world = World(scenario(aggregated=1, engine=engine))
        world.run(long)
        gaps[strategy] = world
    assert gaps[Batching.CONTINUOUS].record.ttft.greatest < gaps[Batching.CHUNKED].record.ttft.greatest


def test_a_request_longer_than_any_replica_is_refused_and_counts_as_missed():
    result = simulate(scenario(), [Arrival(0.0, 3990, 20), Arrival(0.1, 100, 20)])
    assert (result.record.refused, result.record.completed) == (1, 1)
    assert result.attainment == 0.5


def test_kv_that_is_full_preempts_the_newest_and_everybody_completes():
    engine = Engine(
        prefill=(0.01, 1e-4, 0.0), decode=(0.01, 0.0, 0.0, 0.0), kv_tokens=1000, batch_tokens=512, max_sequences=8
    )
    result = simulate(scenario(1, 1, engine=engine, decode_slots=8), [Arrival(0.0, 300, 400), Arrival(0.0, 300, 400)])
    assert result.preemptions >= 1
    assert result.record.completed == 2


@pytest.mark.parametrize(
    ("axis", "labels", "because"),
    [
        (Axis("s", logarithmic=True), ["0.01", "0.1", "1", "10"], "decades"),
        (Axis("s", logarithmic=True, most=0.3), ["0.01", "0.02", "0.05", "0.1", "0.2"], "fewer than three decades"),
        (Axis("s", logarithmic=True, least=0.0192, most=0.0243), ["0.02", "0.022", "0.024"], "no decade in it"),
        (Axis("s", least=0), ["0", "10", "20", "30"], "even steps"),
    ],
)  # fmt: skip
def test_axes_are_labelled_with_round_values(axis, labels, because):
    drawn = plot("t", [Series("a", [(0.01, 0.0), (31.0, 1.0)])], axis, Axis("share", least=0, most=1))
    assert re.findall(r'text-anchor="middle">([0-9.]+)<', drawn) == labels, because
