"""The fewest replicas that would have held the objectives, found by the simulator over the very load that is played."""

from __future__ import annotations

from dataclasses import replace

import yaml
from steelyard.api.accelerator import Accelerator
from steelyard.decide.plan import read
from steelyard.sim.requests import Arrival
from steelyard.sim.run import simulate
from steelyard.sim.scenario import DECODE, PREFILL
from steelyard.sim.spec import of_service

from e2e.demo.burst import fleet
from e2e.demo.burst.fleet import Size
from e2e.errors import ToolError
from e2e.load import Schedule


def fewest(schedule: Schedule) -> tuple[Size, float]:
    """The best split of the smallest number whose attainment is the promised one, and that attainment.

    Every split of every number is simulated, some milliseconds each. Raises ToolError where the budget does not suffice.
    """
    accelerator, body = yaml.safe_load_all(fleet.manifest("hindsight", fleet.LEAST))
    service, refused = read(body)
    if service is None:
        raise ToolError(f"the burst's own service would be refused: {refused}")
    scenario, asked = of_service(service, {accelerator["metadata"]["name"]: Accelerator.read(accelerator)})
    arrivals = [Arrival(one.at, one.prompt_tokens, one.output_tokens) for one in schedule]

    def attainment(size: Size) -> float:
        return simulate(replace(scenario, initial={PREFILL: size.prefill, DECODE: size.decode}), arrivals).attainment

    for number in range(2, fleet.BUDGET + 1):
        best = max(((attainment(size), size) for size in splits(number)), key=lambda pair: pair[0])
        if best[0] >= asked.objectives.attainment:
            return best[1], best[0]
    raise ToolError(f"{fleet.BUDGET} replicas do not hold the objectives over this load, by the simulator")


def splits(number: int) -> list[Size]:
    """Every way to give `number` replicas two roles, within the service's maximum of each."""
    sizes = (Size(prefill, number - prefill) for prefill in range(1, number))
    return [size for size in sizes if max(size.prefill, size.decode) <= fleet.MOST]
