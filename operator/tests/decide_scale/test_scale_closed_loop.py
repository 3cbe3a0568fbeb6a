"""The law in a loop with a fluid world: it converges, it does not oscillate, roles follow the mix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale_worlds import World, service
from steelyard.decide.scale.decision import Memory

LOW, HIGH = (8_000.0, 8.0), (80_000.0, 80.0)


def steady(tokens: float, sequences: float) -> Callable[[float], tuple[float, float]]:
    return lambda _: (tokens, sequences)


def burst(begin: float, end: float, height: float = 1.0) -> Callable[[float], tuple[float, float]]:
    high = (LOW[0] + height * (HIGH[0] - LOW[0]), LOW[1] + height * (HIGH[1] - LOW[1]))
    return lambda t: high if begin <= t < end else LOW


def turns(sizes: Sequence[int]) -> int:
    """How often a sequence changes between rising and falling."""
    moves = [b - a for a, b in pairwise(sizes) if b != a]
    return sum((a > 0) != (b > 0) for a, b in pairwise(moves))


def totals(world: World) -> list[int]:
    return [p + d for _, p, d in world.sizes]


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (12, 1), (3, 12), (9, 4)])
def test_it_converges_from_any_size_and_stays(prefill: int, decode: int) -> None:
    world = World(service(), steady(*HIGH), prefill, decode).run(900)
    settled = [(p, d) for t, p, d in world.sizes if t > 600]
    assert len({p + d for p, d in settled}) <= 2  # beta may still take one off
    assert turns([p + d for p, d in settled]) == 0
    p, d = settled[-1]
    assert 80_000 / 10_973 <= p <= 80_000 / 10_973 + 4
    assert 2 <= d <= 6  # 640 sequences, 180 to a replica


def test_steady_load_is_served() -> None:
    world = World(service(), steady(*HIGH), 10, 5).run(600)
    assert world.lost == 0


def test_without_load_it_goes_to_the_minima_and_rests_there() -> None:
    world = World(service(prefill=(2, 30), decode=(1, 30)), steady(0.0, 0.0), 6, 6).run(600)
    assert [(p, d) for t, p, d in world.sizes if t > 400] == [(2, 1)] * 40


@settings(max_examples=8, deadline=None)  # each is half an hour of a service's life
@given(
    length=st.floats(5, 400),
    height=st.floats(0.1, 1.0),
    start=st.sampled_from([10.0, 60.0, 180.0]),
    change=st.booleans(),
)
def test_a_burst_gives_one_rise_and_one_fall(length: float, height: float, start: float, change: bool) -> None:
    spec = service(role_change=change)
    world = World(spec, burst(600, 600 + length, height), 2, 1, start_seconds=start).run(600)
    world.sizes.clear()
    world.run(length + 1200)
    assert turns(totals(world)) <= 1
    assert totals(world)[-1] <= max(totals(world))


def test_roles_follow_the_mix_within_two_ticks() -> None:
    def mix(t: float) -> tuple[float, float]:
        return (75_000.0, 10.0) if t < 300 else (12_000.0, 170.0)

    world = World(service(accelerators=12), mix, 8, 4).run(300)
    before = world.count("decode")
    world.run(60)
    # 170 sequences/s that stay 8 s: 1,360 of them, R = 180 to a replica
    needed = [t for t, _, d in world.sizes if d >= 8]
    full = next(t for t, _, _ in world.sizes if t > 300 and 170 * 8 * (1 - 2.718 ** -((t - 300) / 8)) > 7.5 * 0.8 * 180)
    assert before < 8
    assert needed
    assert min(needed) <= full + 10
    assert all(p + d <= 12 for _, p, d in world.sizes)


def test_a_restart_changes_nothing() -> None:
    """A fresh memory resumes from what runs; the windows begin with it, so nothing shrinks for W seconds."""
    world = World(service(), burst(100, 500), 3, 2).run(500)
    size = totals(world)[-1]
    world.memory = Memory()
    world.run(60)
    assert min(totals(world)[-12:]) >= size


def test_accelerators_never_exceed_the_budget() -> None:
    world = World(service(accelerators=7), burst(100, 400), 2, 2).run(800)
    assert max(totals(world)) == 7


def test_recommend_touches_nothing() -> None:
    world = World(service(mode="Recommend"), steady(*HIGH), 2, 1).run(300)
    assert set(totals(world)) == {3}
    assert sum(world.decisions[-1].desired.values()) > 8
    assert not any(d.act for d in world.decisions)
