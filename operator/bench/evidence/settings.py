"""The settings on which autoscaling is judged: five traces, and mixes that move. One default of the law for all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import cos, pi
from typing import Any

from steelyard.decide.queue.judge import Objectives
from steelyard.decide.scale import signals as law
from steelyard.sim import spec, synthetic
from steelyard.sim.engine import Engine
from steelyard.sim.policies.policy import Policy
from steelyard.sim.prefix import PrefixCache
from steelyard.sim.replica import Replica
from steelyard.sim.requests import Arrival
from steelyard.sim.run import Result, control
from steelyard.sim.scenario import DECODE, PREFILL, Scenario
from steelyard.sim.synthetic import Load
from steelyard.sim.world import World

from bench.evidence import data
from bench.evidence.dynamo import DynamoReplica
from bench.evidence.engines import CLASS_32B, DYNAMO

ATTAINMENT = 0.95  # what the law is asked for: the default of the API, and the floor of the five traces
BUDGET = 64


@dataclass(frozen=True)
class Setting:
    """One load on one engine, with its start. `artefact` puts Dynamo's prefill worker in the place of ours."""

    name: str
    arrivals: Callable[[int], list[Arrival]]  # by seed
    engine: Engine
    objectives: Objectives
    initial: Mapping[str, int]
    artefact: bool = False
    startup: float = 60.0
    further: Mapping[str, Any] = field(default_factory=dict)

    def scenario(self, seed: int = 0, **changes: Any) -> Scenario:
        """The scenario of one seed."""
        return Scenario(
            **{
                "engine": self.engine,
                "objectives": self.objectives,
                "initial": dict(self.initial),
                "startup_seconds": self.startup,
                "seed": seed,
                **self.further,
                **changes,
            }
        )

    def told(self, scenario: Scenario, budget: int = BUDGET) -> law.Service:
        """What the law is told."""
        return spec.told(scenario, ATTAINMENT, role_change=True, budget=budget)

    def run(self, scenario: Scenario, policy: Policy, seed: int = 0) -> Result:
        """Run a policy."""

        def make(world: World, name: str, role: str, cache: PrefixCache | None) -> Replica:
            return DynamoReplica(name, role, self.engine, world, cache)

        return control(World(scenario, make if self.artefact else None), policy, self.arrivals(seed))


def _pd(prefill: int, decode: int) -> dict[str, int]:
    return {PREFILL: prefill, DECODE: decode}


TRACES = (
    Setting("azure-code ×10", lambda s: data.subsample(data.azure_code(10), s), DYNAMO, Objectives(0.5, 0.05), _pd(6, 1), True),
    Setting("azure-conv ×10", lambda s: data.subsample(data.azure_conversation(10), s), CLASS_32B, Objectives(2.0, 0.05),
            _pd(7, 4)),
    Setting("mooncake ×8", lambda s: data.subsample(data.mooncake(8), s), DYNAMO, Objectives(3.0, 0.05), _pd(6, 9)),
    Setting("azure-2024 code day ×24", data.azure_2024_code_day, CLASS_32B, Objectives(2.0, 0.05), _pd(3, 1)),
    Setting("servegen r1 ×24", lambda s: data.subsample(data.servegen_r1(), s), CLASS_32B, Objectives(2.0, 0.05), _pd(3, 9)),
)  # fmt: skip

LONG_PROMPTS = Load(rate=12.5 * 1.25, prompt=6000, answer=150)
LONG_ANSWERS = Load(rate=33 * 1.25, prompt=500, answer=1000)


def alternating(phase: float, seconds: float, seed: int) -> list[Arrival]:
    """Long prompts and long answers in turn."""
    return list(synthetic.alternating(LONG_PROMPTS, LONG_ANSWERS, phase, seconds, seed))


def overload(seed: int) -> list[Arrival]:
    """Azure's conversations ×20, still: both roles are short."""
    return synthetic.jittered(data.azure_conversation(10), 2, 3.0, seed)


def day_and_night(
    seconds: float, period: float, code: float, reasoning: float, mooncake: float, seed: int
) -> list[Arrival]:
    """Code by day, reasoning by night, long conversations throughout."""
    swing = 2 * pi / period
    streams = (
        (data.azure_code(10), lambda at: code * (0.5 + 0.5 * cos(swing * at))),
        (data.mooncake(4), lambda at: mooncake * 0.5),
        # The file is 24 times as fast as its day; slowed to 4 times, each of its requests stands for one.
        (
            [a._replace(at=a.at * 6) for a in data.servegen_r1()],
            lambda at: 6 * reasoning * (0.5 - 0.5 * cos(swing * at)),
        ),
    )
    kept = []
    for number, (stream, share) in enumerate(streams):
        kept.append(list(_kept(list(synthetic.repeated(stream, seconds)), share, seed * 10 + number)))
    return list(synthetic.together(*kept))


def _kept(arrivals: list[Arrival], share: Callable[[float], float], seed: int) -> list[Arrival]:
    """Each request as often as `share` of its time says, on average."""
    most = 6
    copies = list(synthetic.scaled(iter(arrivals), most, seed))
    return list(synthetic.thinned(copies, lambda at: share(at) / most, seed))


def _mix(name: str, arrivals: Callable[[int], list[Arrival]], prefill: int, decode: int) -> Setting:
    return Setting(name, arrivals, CLASS_32B, Objectives(2.0, 0.05), _pd(prefill, decode))


# Under a fixed budget: the number of replicas stays, the ratio moves.
MIXES = (
    _mix("alt60", lambda s: alternating(60, 720, s), 5, 7),
    _mix("alt150", lambda s: alternating(150, 900, s), 5, 7),
    _mix("alt450", lambda s: alternating(450, 1350, s), 5, 7),
    _mix("day-night", lambda s: day_and_night(1800, 900, 1.2, 0.6, 0.3, s), 9, 5),
    _mix("still overload", overload, 11, 5),
)

# With scaling: the same mixes from seven and seven.
MOVING = (
    _mix("alt60 scaled", lambda s: alternating(60, 720, s), 7, 7),
    _mix("alt150 scaled", lambda s: alternating(150, 900, s), 7, 7),
    _mix("alt450 scaled", lambda s: alternating(450, 1800, s), 7, 7),
)
