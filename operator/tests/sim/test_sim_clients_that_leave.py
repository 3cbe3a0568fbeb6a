"""Clients that give up: everything for them stops, they count as failed, and nothing of theirs stays behind."""

import pytest
from sim_worlds import SMALL, Checked, scenario
from steelyard.sim.engine import Batching
from steelyard.sim.requests import Arrival
from steelyard.sim.run import simulate
from steelyard.sim.scenario import Routing
from steelyard.sim.synthetic import Load, steady

# One replica a role; a prompt of 400 takes 0.05 s, a step 10 ms, an answer of 100 some 1.1 s.
ALONE = [Arrival(0.0, 400, 100)]


@pytest.mark.parametrize(
    ("patience", "failed", "because"),
    [
        (10.0, 0, "it is answered long before"),
        (0.02, 1, "it leaves in its prefill pass"),
        (0.06, 1, "it leaves on the way to decode or in its first step"),
        (0.5, 1, "it leaves in the middle of its answer"),
    ],
)
@pytest.mark.parametrize("routing", list(Routing))
def test_a_client_that_leaves_is_forgotten_wherever_it_is(patience, failed, because, routing):
    world = Checked(scenario(1, 1, routing=routing, client_timeout_seconds=patience))
    world.run(ALONE)
    assert (world.record.failed, world.record.gave_up) == (failed, failed), because
    assert world.record.completed == 1 - failed
    assert all(m.replica.idle() and m.replica.kv == m.replica.outstanding == 0 for m in world.fleet.members)
    assert world.now <= max(1.5, patience), "an engine that is left stops"


def test_who_leaves_makes_room_for_the_others():
    load = list(steady(Load(rate=12, prompt=600, answer=60), 30, seed=4))
    patient, hasty = (
        simulate(scenario(1, 1, client_timeout_seconds=patience), load).record for patience in (None, 3.0)
    )
    assert patient.gave_up == 0 < hasty.gave_up
    assert hasty.completed + hasty.failed + hasty.refused == hasty.arrived
    assert hasty.worst_wait <= 3.0 + 1e-9 < patient.worst_wait
    assert hasty.met >= patient.met, "the engine does not compute for those who are gone"


def test_a_waiting_batch_does_not_keep_room_for_those_who_left():
    engine = SMALL.__class__(
        prefill=SMALL.prefill,
        decode=SMALL.decode,
        kv_tokens=4000,
        batch_tokens=512,
        max_sequences=8,
        batching=Batching.STATIC,
    )
    world = Checked(scenario(aggregated=1, engine=engine, client_timeout_seconds=1.0))
    world.run([Arrival(0.01 * number, 100, 60) for number in range(20)])
    record = world.record
    assert record.arrived == record.completed + record.failed
    assert record.gave_up > 0


def test_a_timeout_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="client_timeout_seconds is 0"):
        scenario(client_timeout_seconds=0)
