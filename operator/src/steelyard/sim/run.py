"""A run with a policy, and what came of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from steelyard.sim.fleet import State
from steelyard.sim.policies.policy import Policy, Static
from steelyard.sim.record import Record
from steelyard.sim.requests import Arrival
from steelyard.sim.scenario import Scenario
from steelyard.sim.watch import Watch
from steelyard.sim.world import World

MOST_POINTS = 2000  # of a timeline; beyond, every second one is dropped


@dataclass(frozen=True, slots=True)
class Point:
    """One moment of the timeline: replicas ready by role, others, and what waits."""

    at: float
    ready: dict[str, int]
    starting: int
    draining: int
    prefill_queue: int
    decode_queue: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Result:
    """One run's figures. Seconds; hours of accelerators from the start of a start-up to the end of a drain."""

    record: Record
    seconds: float
    accelerator_hours: float
    peak_replicas: int
    starts: int
    stops: int
    role_changes: int
    preemptions: int
    timeline: tuple[Point, ...]

    @property
    def attainment(self) -> float:
        """Share of all requests that met both objectives; refused and failed ones did not."""
        return self.record.met / self.record.ended if self.record.ended else 0.0

    @property
    def attainment_over_time(self) -> float:
        """Mean over half minutes with at least 20 requests: a short collapse weighs as much as it lasts."""
        shares = [share.met / share.judged for share in self.record.periods.values() if share.judged >= 20]
        return sum(shares) / len(shares) if shares else self.attainment

    @property
    def role_changes_per_minute(self) -> float:
        """How restless the ratio was."""
        return 60 * self.role_changes / self.seconds if self.seconds else 0.0

    @property
    def goodput(self) -> float:
        """Requests per second and accelerator that met both objectives."""
        spent = self.accelerator_hours * 3600
        return self.record.met / spent if spent else 0.0


def simulate(
    scenario: Scenario,
    arrivals: Iterable[Arrival],
    policy: Policy | None = None,
    progress: Callable[[Arrival], None] | None = None,
) -> Result:
    """Run one scenario to its end."""
    world = World(scenario)
    return control(world, policy or Static(), arrivals, progress)


def control(
    world: World, policy: Policy, arrivals: Iterable[Arrival], progress: Callable[[Arrival], None] | None = None
) -> Result:
    """Put a policy in charge of a world, and run it to its end."""
    watch = Watch(world)
    fleet = world.fleet
    timeline: list[Point] = []
    every = 1

    def tick(now: float) -> None:
        nonlocal every
        action = policy.tick(now, watch)
        if action is not None:
            fleet.relabel(action.relabel, now)
            if action.pools:
                fleet.resize(action.pools, now, action.remove)
        for gateway in world.gateways:
            gateway.retune()
        if round(now / world.scenario.tick_seconds) % every == 0:
            timeline.append(_point(world, now))
            if len(timeline) > MOST_POINTS:
                del timeline[1::2]
                every *= 2

    world.every(world.scenario.tick_seconds, tick)
    world.run(arrivals, progress)
    return Result(
        record=world.record,
        seconds=world.now,
        accelerator_hours=fleet.accelerator_seconds(world.now) / 3600,
        peak_replicas=fleet.peak,
        starts=fleet.starts,
        stops=fleet.stops,
        role_changes=fleet.role_changes,
        preemptions=fleet.preemptions,
        timeline=tuple(timeline),
    )


def _point(world: World, now: float) -> Point:
    fleet, depth = world.fleet, world.depth()
    return Point(
        at=now,
        ready={role: len(fleet.labelled(role, State.READY)) for role in world.scenario.roles},
        starting=sum(m.state is State.STARTING for m in fleet.members),
        draining=sum(m.state is State.DRAINING for m in fleet.members),
        prefill_queue=depth.prefill,
        decode_queue=depth.decode,
        in_flight=len(world.requests),
    )
