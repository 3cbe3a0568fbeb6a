"""Weeks of load in rates: laws of what flows, and how near it is to the simulation of requests."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steelyard.decide.queue.judge import Objectives
from steelyard.decide.queue.windows import ArrivalWindows
from steelyard.sim import fluid, spec
from steelyard.sim.engine import Engine
from steelyard.sim.flow import Flow, Lengths
from steelyard.sim.policies.choose import choose
from steelyard.sim.policies.policy import Action, Static
from steelyard.sim.requests import Arrival
from steelyard.sim.run import control, simulate
from steelyard.sim.scenario import AGGREGATED, DECODE, PREFILL, Failure, Scenario

ENGINE = Engine(prefill=(0.01, 8e-5, 0.0), decode=(0.012, 0.015, 0.0, 1e-4), kv_tokens=500_000, block_tokens=64)
PAIRS = [(max(16, int(Random(n).lognormvariate(6.8, 0.6))), 100) for n in range(400)]
LENGTHS = Lengths.of(PAIRS)


def scenario(prefill=2, decode=1, **further):
    given = {
        "engine": ENGINE,
        "objectives": Objectives(2.0, 0.05),
        "initial": {PREFILL: prefill, DECODE: decode},
        **further,
    }
    return Scenario(**given)


def flow(rate, seconds=300.0, cv=1.0, seed=0):
    return Flow([(0.0, rate)], seconds, LENGTHS, cv, seed=seed)


def requests(rate, seconds):
    random, at = Random("requests"), 0.0
    while (at := at + random.expovariate(rate)) < seconds:
        yield Arrival(at, *random.choice(PAIRS))


class Restless:
    """A policy without sense."""

    def __init__(self, moves):
        self.moves = list(moves)

    def tick(self, now, watch):
        if not self.moves:
            return None
        prefill, decode, swap = self.moves.pop()
        flips = tuple(
            (m.replica.name, DECODE if m.role == PREFILL else PREFILL) for m in watch.fleet.members[:1] if swap
        )
        return Action({PREFILL: prefill, DECODE: decode}, flips)


class Checked(fluid.Fluid):
    """Looks at what it holds at every account."""

    def _account(self):
        super()._account()
        assert min(self._backlog, self._late, self._waiting, self._waiting_late) >= -1e-9
        assert self._sequences >= -1e-9
        assert self._lost <= self._arrived + 1e-6
        held = self._sequences + sum(replica.load for replica in self._leaving)
        assert held <= (len(self._writing) + len(self._leaving)) * self._slots + 1
        record = self.record
        assert record.met <= record.completed <= record.arrived + 1


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.5, 60), st.sampled_from([0.7, 1.0, 3.0]),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.booleans()), max_size=8), st.integers(0, 99),
)  # fmt: skip
def test_nothing_is_lost_or_made_up_whatever_a_policy_does(rate, cv, moves, seed):
    world = Checked(scenario(2, 2, startup_seconds=3.0, capacity=8), flow(rate, 60.0, cv, seed))
    result = control(world, Restless(moves), ())
    assert result.record.arrived == result.record.completed
    assert 0 <= result.record.met <= result.record.completed
    assert result.peak_replicas <= 8


@pytest.mark.parametrize(
    ("rate", "prefill", "decode", "least", "most", "because"),
    [
        (5.0, 2, 1, 0.999, 1.0, "far more than it needs"),
        (200.0, 1, 1, 0.0, 0.35, "prefill is a tenth of what it needs: some short ones still make it"),
    ],
)
def test_extremes(rate, prefill, decode, least, most, because):
    assert least <= fluid.play(scenario(prefill, decode), flow(rate), Static()).attainment <= most, because


def test_the_same_seed_gives_the_same_run_and_another_one_another():
    shares = [fluid.play(scenario(1, 1), flow(9.0, cv=3.0, seed=seed), Static()).record.met for seed in (1, 1, 2)]
    assert shares[0] == shares[1] != shares[2]


@settings(max_examples=10, deadline=None)
@given(st.floats(4, 30), st.sampled_from([0, 1]))
def test_more_replicas_never_hurt(rate, role):
    few = fluid.play(scenario(1, 1), flow(rate, 120.0), Static()).attainment
    more = fluid.play(scenario(1 + (role == 0), 1 + (role == 1)), flow(rate, 120.0), Static()).attainment
    assert more >= few - 0.005


@pytest.mark.parametrize(("prefill", "apart"), [(1, 0.1), (2, 0.03), (3, 0.01)])
def test_rates_come_near_requests(prefill, apart):
    """A still load that is far too much for one prefill replica, nearly so for two, and that three can serve."""
    rate, seconds = 19.0, 300.0
    exact = simulate(scenario(prefill, 1), requests(rate, seconds)).attainment
    assert fluid.play(scenario(prefill, 1), flow(rate, seconds), Static()).attainment == pytest.approx(exact, abs=apart)


def test_our_law_follows_a_load_that_rises_and_falls():
    rising = Flow([(0.0, 4.0), (300.0, 30.0), (900.0, 4.0)], 2400.0, LENGTHS, 1.0)
    given = scenario(2, 1, startup_seconds=30.0)
    policy = choose("ours", ENGINE, spec.told(given, 0.95, role_change=True, budget=30)).make()
    result = fluid.play(given, rising, policy)
    sizes = {at: next(sum(p.ready.values()) for p in result.timeline if p.at >= at) for at in (250.0, 800.0, 2350.0)}
    assert sizes[800.0] > sizes[250.0]
    assert sizes[2350.0] < sizes[800.0]
    assert result.attainment > 0.9


@pytest.mark.parametrize(
    "given",
    [
        lambda: scenario(initial={AGGREGATED: 2}),
        lambda: scenario(failures=(Failure(1.0, DECODE),)),
        lambda: scenario(client_timeout_seconds=5.0),
    ],
)
def test_what_cannot_flow_is_refused(given):
    with pytest.raises(ValueError, match="simulate requests"):
        fluid.Fluid(given(), flow(1.0))


def test_lengths_say_how_many_requests_are_late_where_work_is():
    even = Lengths.of([(100, 10)] * 50)
    assert even.requests(0.5) == pytest.approx(0.5, abs=0.02)
    uneven = Lengths.of([(100, 10)] * 90 + [(9000, 10)] * 10)
    assert uneven.requests(0.5) < 0.2
    assert (uneven.requests(0.0), uneven.requests(1.0)) == (0.0, 1.0)
    assert Lengths.of([(100, 10), (300, 30)], 1000, 5)[:3] == (1000, 5, pytest.approx(1.25))
    with pytest.raises(ValueError, match="no lengths"):
        Lengths.of([])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=600))
@settings(max_examples=30, deadline=None)
def test_windows_of_steps_are_the_gateways_windows(tokens):
    exact, steps = ArrivalWindows(), fluid.StepWindows()
    for number, step in enumerate(tokens):
        steps.steps.append(step)
        for place in range(4):
            exact.add(number + place / 4, step / 4)
    assert steps.complete(float(len(tokens))) == exact.complete(float(len(tokens)))
