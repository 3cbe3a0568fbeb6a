"""Policies in the loop: they see only the past, keep their bounds, and do what they are for."""

import pytest
from sim_worlds import Checked, scenario
from steelyard.sim import spec
from steelyard.sim.engine import Engine
from steelyard.sim.policies.choose import RIVALS, choose
from steelyard.sim.policies.law import look
from steelyard.sim.policies.policy import Static
from steelyard.sim.run import control, simulate
from steelyard.sim.scenario import DECODE, PREFILL, Failure, Routing
from steelyard.sim.synthetic import Load, alternating, steady
from steelyard.sim.world import World

ENGINE = Engine(
    prefill=(0.01, 1e-4, 0.0), decode=(0.01, 0.02, 0.0, 2e-4), kv_tokens=60_000, batch_tokens=2048, max_sequences=64
)
POLICIES = ("ours", *RIVALS, "fixed-ratio,tokens_per_second=300,ratio=2")
BUSY = Load(rate=30, prompt=900, answer=60)


def policy(name, given, budget=12):
    return choose(name, given.engine, spec.told(given, 0.95, role_change=True, budget=budget)).make()


class Diary:
    """Notes what a policy did, and when."""

    def __init__(self, inner):
        self.inner, self.notes = inner, []

    def tick(self, now, watch):
        action = self.inner.tick(now, watch)
        if action is not None:
            self.notes.append((now, dict(action.pools), action.relabel, action.remove))
        return action


@pytest.mark.parametrize("name", POLICIES)
def test_what_happens_later_changes_nothing_before(name):
    """Two loads that are equal for forty seconds and then differ: every decision until then is the same."""
    past = list(steady(BUSY, 40, seed=1))
    quiet = [*past, *(a._replace(at=a.at + 40) for a in steady(Load(rate=1, prompt=100, answer=5), 15, seed=2))]
    storm = [*past, *(a._replace(at=a.at + 40) for a in steady(Load(rate=60, prompt=2000, answer=50), 10, seed=3))]
    notes = []
    for load in (quiet, storm):
        given = scenario(3, 3, engine=ENGINE, startup_seconds=10)
        diary = Diary(policy(name, given))
        control(World(given), diary, load)
        notes.append([note for note in diary.notes if note[0] <= 40])
    assert notes[0] == notes[1]
    assert notes[0], "it decided something"


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_the_budget_and_loses_nobody(name):
    given = scenario(2, 2, engine=ENGINE, startup_seconds=5, capacity=14)
    world = Checked(given)
    result = control(world, policy(name, given, budget=6), list(steady(BUSY, 40, seed=4)))
    assert result.record.completed == result.record.arrived
    assert max(sum(p.ready.values()) + p.starting for p in result.timeline) <= 6


@pytest.mark.parametrize("name", ["ours", "token-velocity", "hpa-queue", "hpa-utilisation", "dynamo-load"])
def test_too_few_replicas_grow_and_idle_ones_go(name):
    given = scenario(1, 1, engine=ENGINE, startup_seconds=5)
    busy = control(World(given), policy(name, given), list(steady(BUSY, 60, seed=5)))
    assert busy.peak_replicas > 2
    idle = scenario(5, 4, engine=ENGINE, startup_seconds=5)
    trickle = list(steady(Load(rate=0.5, prompt=100, answer=5), 300, seed=6))
    assert control(World(idle), policy(name, idle), trickle).timeline[-1].ready[PREFILL] < 5


def test_our_law_moves_the_ratio_with_the_mix_and_gains_by_it():
    one, other = Load(rate=6, prompt=3000, answer=20), Load(rate=14, prompt=200, answer=400)
    load = list(alternating(one, other, 120, 480, seed=7))
    given = scenario(4, 4, engine=ENGINE, role_change_seconds=1.0)
    moved = control(World(given), policy("ours", given, budget=8), load)
    assert moved.role_changes > 0
    assert {tuple(sorted(p.ready.items())) for p in moved.timeline} != {((DECODE, 4), (PREFILL, 4))}


def test_without_metrics_our_law_holds():
    given = scenario(3, 3, engine=ENGINE, startup_seconds=5, stale=((0.0, 1e9),))
    result = control(World(given), policy("ours", given), list(steady(BUSY, 30, seed=8)))
    assert (result.starts, result.stops, result.role_changes) == (0, 0, 0)
    assert result.record.completed == result.record.arrived


def test_the_queue_beats_round_robin_on_bursts():
    load = list(steady(Load(rate=11, prompt=1500, answer=10, cv=4, spread=1.0), 120, seed=9))
    shares = {
        routing: simulate(scenario(2, 1, engine=ENGINE, routing=routing), load, Static()).attainment
        for routing in Routing
    }
    assert shares[Routing.GATEWAY] > shares[Routing.ROUND_ROBIN]


def test_a_dead_replica_costs_only_those_whose_answer_had_begun():
    load = list(steady(Load(rate=24, prompt=600, answer=60), 60, seed=10))
    failures = (Failure(20.0, DECODE), Failure(30.0, PREFILL), Failure(40.0, DECODE))
    world = Checked(scenario(2, 2, engine=ENGINE, startup_seconds=2, failures=failures))
    result = control(world, Static(), load)
    assert result.record.retries > 0
    assert 0 < result.record.failed < len(load) / 10
    assert result.starts == 3, "each is replaced in its pool"


def test_behind_another_router_the_law_is_told_what_engines_tell_and_grows_by_it():
    """One prefill replica for three times what it can do: it finishes what it can, its queue says the rest."""
    given = scenario(1, 1, engine=ENGINE, startup_seconds=30, routing=Routing.LEAST_LOADED)
    told = []

    class Told(Diary):
        def tick(self, now, watch):
            told.append((look(now, watch), watch.rate("uncached_tokens", 20.0)))
            return super().tick(now, watch)

    diary = Told(policy("ours", given))
    control(World(given), diary, list(steady(Load(rate=30, prompt=900, answer=20), 90, seed=6)))
    early = [(found, arriving) for found, arriving in told if 25 <= found.time <= 30]
    assert early
    assert all(found.by_engines and found.arrivals is None and found.ttft_judged is None for found, _ in early)
    assert all(found.uncached_rate < 0.6 * arriving for found, arriving in early), "not what arrives at the router"
    assert max(pools[PREFILL] for _, pools, _, _ in diary.notes if PREFILL in pools) >= 4
