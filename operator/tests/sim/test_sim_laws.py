"""Laws of every run, whatever the load, the engine, the router and the failures."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import Checked, arrivals, scenario, scenarios
from steelyard.sim.engine import Engine
from steelyard.sim.policies.policy import Action
from steelyard.sim.requests import Arrival
from steelyard.sim.run import control, simulate
from steelyard.sim.scenario import DECODE, PREFILL
from steelyard.sim.synthetic import Load, steady
from steelyard.sim.world import World


@settings(max_examples=100, deadline=None)
@given(scenarios, arrivals)
def test_requests_are_conserved_and_kv_stays_within_its_capacity(given_scenario, given_arrivals):
    world = Checked(given_scenario)
    world.run(given_arrivals)
    record = world.record
    assert record.arrived == len(given_arrivals) == record.completed + record.failed + record.refused
    too_long = sum(a.prompt + a.answer + 1 > given_scenario.engine.kv_tokens for a in given_arrivals)
    assert record.refused == too_long
    if not given_scenario.failures:
        assert record.failed == record.gave_up
    if given_scenario.client_timeout_seconds is None:
        assert record.gave_up == 0
    assert record.gave_up <= record.failed
    quarters = record.quartiles()
    assert sum(part.share.judged for part in quarters) == record.ended
    assert sum(part.share.met for part in quarters) == record.met
    assert all(before.most <= after.least + 1 for before, after in pairwise(quarters))
    assert record.met <= min(record.ttft_met, record.tpot_met)
    for member in world.fleet.members:
        assert member.replica.idle(), f"{member.replica.name} still holds something"
        assert member.replica.kv == member.replica.outstanding == 0


class Restless:
    """A policy without sense: it resizes and relabels by a list, whatever it sees."""

    def __init__(self, moves):
        self.moves = list(moves)

    def tick(self, now, watch):
        if not self.moves:
            return None
        prefill, decode, swap = self.moves.pop()
        members = watch.fleet.members
        flips = tuple((m.replica.name, DECODE if m.role == PREFILL else PREFILL) for m in members[:1] if swap)
        return Action({PREFILL: prefill, DECODE: decode}, flips)


@settings(max_examples=40, deadline=None)
@given(
    arrivals, st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.booleans()), max_size=12), st.integers(2, 6)
)
def test_no_policy_can_lose_a_request_or_pass_the_capacity(given_arrivals, moves, capacity):
    world = Checked(
        scenario(capacity=capacity, startup_seconds=0.5, tick_seconds=0.3, scrape_seconds=0.3, scrape_age_seconds=0.1)
    )
    result = control(world, Restless([(4, 4, False), (2, 2, False), *moves]), given_arrivals)
    assert result.peak_replicas <= capacity
    assert result.record.arrived == result.record.completed + result.record.failed + result.record.refused
    assert result.record.failed == 0 or any(flip for _, _, flip in moves)


@settings(max_examples=20, deadline=None)
@given(scenarios, arrivals)
def test_the_same_seed_gives_the_same_run(given_scenario, given_arrivals):
    def figures():
        result = simulate(given_scenario, given_arrivals)
        return (
            result.seconds,
            result.accelerator_hours,
            result.record.met,
            result.record.ttft.total,
            result.record.tpot.total,
        )

    assert figures() == figures()


def test_another_seed_gives_another_run():
    load = list(steady(Load(rate=20, prompt=300, answer=30), 20, seed=1))
    noisy = [simulate(scenario(2, 1, estimate_noise=0.5, seed=seed), load).record.ttft.total for seed in (1, 2)]
    assert noisy[0] != noisy[1]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0, 1]))
def test_more_replicas_never_hurt_beyond_noise(seed, role):
    load = list(steady(Load(rate=14, prompt=500, answer=40), 40, seed))
    engine = Engine(
        prefill=(0.01, 1e-4, 0.0), decode=(0.01, 0.02, 0.0, 1e-4), kv_tokens=20_000, batch_tokens=2048, max_sequences=32
    )
    few = simulate(scenario(1, 1, engine=engine), load).attainment
    more = simulate(scenario(1 + (role == 0), 1 + (role == 1), engine=engine), load).attainment
    noise = 2 * (0.25 / len(load)) ** 0.5
    assert more >= few - noise


def test_an_interrupted_stretch_costs_nothing():
    """Newcomers cut stretches; a sequence alone in its batch must not notice others that never join it."""
    alone = World(scenario(1, 2))
    alone.run([Arrival(0.0, 100, 150)])
    beside = World(scenario(1, 2))
    beside.run([Arrival(0.0, 100, 150), Arrival(0.5, 100, 2), Arrival(0.9, 100, 2)])
    assert beside.record.tpot.greatest <= alone.record.tpot.greatest * (1 + 1e-9) or beside.record.completed == 3
