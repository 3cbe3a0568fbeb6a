"""What a replica costs and when it serves: starts, drains, role changes and labels, by hand."""

import pytest
from sim_worlds import SMALL, Checked, scenario
from steelyard.sim.policies.policy import Action, Static
from steelyard.sim.requests import Arrival
from steelyard.sim.run import control
from steelyard.sim.scenario import DECODE, PREFILL, Failure

LAST = Arrival(100.0, 10, 1)


class Plan:
    """Acts at given ticks."""

    def __init__(self, acts):
        self.acts = acts

    def tick(self, now, watch):
        return self.acts.get(round(now))


def run(acts, arrivals=(LAST,), **further):
    world = Checked(scenario(1, 1, tick_seconds=5.0, **further))
    return world, control(world, Plan(acts), list(arrivals))


def hours(result):
    return result.accelerator_hours * 3600


def test_a_replica_is_paid_from_the_start_of_its_start_and_serves_after_it():
    world, plain = run({})
    _, grown = run({10: Action({PREFILL: 2})}, startup_seconds=30.0)
    assert hours(grown) - hours(plain) == pytest.approx(world.now - 10.0, abs=0.5)
    ready = {round(point.at): point.ready[PREFILL] for point in grown.timeline}
    assert (ready[35], ready[45]) == (1, 2)


def test_one_that_is_given_up_while_it_starts_is_paid_until_then():
    _, plain = run({})
    _, tried = run({10: Action({PREFILL: 2}), 30: Action({PREFILL: 1})}, startup_seconds=60.0)
    assert hours(tried) - hours(plain) == pytest.approx(20.0)
    assert (tried.starts, tried.stops, tried.peak_replicas) == (1, 1, 3)


def test_a_draining_replica_takes_nothing_new_and_is_paid_until_its_last_answer():
    long = [Arrival(9.5, 400, 1000), LAST]  # some 13 seconds of steps
    world, plain = run({}, long)
    busy = {10: Action({DECODE: 2}, remove=()), 15: Action({DECODE: 1}, remove=("r00001",))}
    _, drained = run(busy, long, startup_seconds=1.0)
    spent = hours(drained) - hours(plain)
    done = 9.5 + plain.record.ttft.greatest + 999 * plain.record.tpot.greatest
    assert drained.record.completed == 2
    assert spent == pytest.approx((world.now - 10.0) - (world.now - done), abs=1.0)


@pytest.mark.parametrize(("delay", "at_30"), [(2.0, {PREFILL: 2, DECODE: 1}), (25.0, {PREFILL: 2, DECODE: 1})])
def test_a_role_change_costs_no_start_and_takes_its_delay(delay, at_30):
    world = Checked(scenario(1, 2, tick_seconds=5.0, role_change_seconds=delay))
    seen = []
    world.at(20.0, lambda now: seen.append(len(world.fleet.ready(PREFILL))))
    result = control(world, Plan({10: Action(relabel=(("r00001", PREFILL),))}), [LAST])
    assert (result.role_changes, result.starts, result.stops) == (1, 0, 0)
    assert seen == [2 if delay < 10 else 1], "routers follow the label after the delay"
    labels = next(point.ready for point in result.timeline if point.at >= 30)
    assert labels == at_30, "the label itself changes at once"
    assert result.role_changes_per_minute == pytest.approx(60 / result.seconds)


def test_a_replica_that_dies_is_replaced_in_its_pool_after_a_start():
    world = Checked(scenario(2, 1, engine=SMALL, startup_seconds=20.0, failures=(Failure(10.0, PREFILL),)))
    result = control(world, Static(), [LAST])
    ready = {round(point.at): point.ready[PREFILL] for point in result.timeline}
    assert (ready[15], ready[35]) == (1, 2)
