"""Dynamo's queue as a rival: the shortest prompt first while everybody is busy, nobody late-last."""

import pytest
from bench.evidence import data
from bench.evidence.dynamo import OBJECTIVES
from bench.evidence.engines import DYNAMO
from sim_worlds import Checked, scenario
from steelyard.sim.engine import Engine
from steelyard.sim.requests import Arrival
from steelyard.sim.run import simulate
from steelyard.sim.scenario import DECODE, PREFILL, Routing, Scenario

ENGINE = Engine(prefill=(0.01, 1e-4, 0.0), decode=(0.01, 0.02, 0.0, 1e-4), kv_tokens=100_000, batch_tokens=2000)


class Ordered(Checked):
    """Keeps the order in which prompts were computed."""

    def prefilled(self, request, now):
        self.order = [*getattr(self, "order", []), request.prompt]
        super().prefilled(request, now)


@pytest.mark.parametrize(
    ("routing", "order", "because"),
    [
        (Routing.WSPT, [3000, 100, 600, 900, 1900], "all but the first wait: it keeps the replica above half a pass"),
        (Routing.LEAST_LOADED, [3000, 1900, 600, 100, 900], "bound as they come"),
    ],
)
def test_who_is_prefilled_first(routing, order, because):
    world = Ordered(scenario(1, 1, engine=ENGINE, routing=routing))
    world.run([Arrival(0.001 * n, prompt, 2) for n, prompt in enumerate((3000, 1900, 600, 100, 900))])
    assert world.order == order, because


def test_its_queue_is_seen_by_monitoring_and_drains():
    world = Checked(scenario(1, 1, engine=ENGINE, routing=Routing.WSPT))
    seen = []
    world.at(0.05, lambda now: seen.append(world.depth()))
    world.run([Arrival(0.001 * n, 3000, 2) for n in range(6)])
    assert seen[0].prefill == 5
    assert seen[0].prefill_tokens == 5 * 3000
    assert world.depth().prefill == 0


def test_long_prompts_pay_for_it_where_the_gateway_would_not_let_them_starve():
    """In an overload that lasts, what never becomes the shortest waits to the end."""
    load = [Arrival(0.05 * n, 1800 if n % 10 else 6000, 2) for n in range(400)]
    waits = {routing: simulate(scenario(1, 1, engine=ENGINE, routing=routing), load).record for routing in Routing}
    last = waits[Routing.WSPT].quartiles()[-1]
    assert last.share.met <= waits[Routing.GATEWAY].quartiles()[-1].share.met
    assert waits[Routing.WSPT].worst_wait >= waits[Routing.ROUND_ROBIN].worst_wait * 0.9


def test_it_is_no_weaker_than_the_original_in_its_own_replay():
    given = Scenario(engine=DYNAMO, objectives=OBJECTIVES, initial={PREFILL: 8, DECODE: 1}, routing=Routing.WSPT)
    assert simulate(given, data.azure_code(10)).attainment >= 0.966
