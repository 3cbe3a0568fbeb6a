"""Our simulator against Dynamo 1.4.2's replay: the same trace, engine constants and round robin, eight static ratios.

Dynamo's prefill worker keeps a request for (answer − 1) further passes unless it goes idle, each taking one token of the
budget and one slot. That artefact belongs here, not in the simulator: `DynamoReplica` has it.
"""

from heapq import heappop, heappush
from typing import Any

from steelyard.decide.queue.judge import Objectives
from steelyard.sim.policies.policy import Static
from steelyard.sim.prefix import PrefixCache
from steelyard.sim.replica import Replica
from steelyard.sim.requests import Request
from steelyard.sim.run import Result, control
from steelyard.sim.scenario import DECODE, PREFILL, Routing, Scenario
from steelyard.sim.world import World

from bench.evidence import data
from bench.evidence.engines import DYNAMO

OBJECTIVES = Objectives(ttft_seconds=0.5, tpot_seconds=0.05)

# (prefill, decode) → (attainment, GPU-hours), as its report said for Azure code ×10, 500/50 ms, default engine.
GOLDEN = {
    (1, 5): (0.0, 0.666),
    (2, 4): (0.049, 0.587),
    (3, 3): (0.194, 0.584),
    (4, 2): (0.378, 0.583),
    (5, 1): (0.538, 0.583),
    (8, 1): (0.799, 0.873),
    (12, 2): (0.928, 1.354),
    (20, 2): (0.981, 2.128),
}
TOLERANCE = 0.005


class DynamoReplica(Replica):
    """A replica whose finished prompts stay in its way."""

    def __init__(self, *arguments: Any) -> None:
        """Begin with nothing kept."""
        super().__init__(*arguments)
        self._kept: list[tuple[int, int, Request]] = []  # by the pass at which each leaves
        self._passes = 0

    def allowance(self) -> tuple[int, int]:
        """Each kept request takes a token and a slot."""
        tokens, prompts = super().allowance()
        return tokens - len(self._kept), prompts - len(self._kept)

    def pass_seconds(self, pieces: list[int]) -> float:
        """Its tokens are rounded down to a multiple of the prompts."""
        return self.engine.prefill_seconds(sum(pieces) // len(pieces) * len(pieces))

    def in_work(self, request: Request) -> bool:
        """Kept requests are worked on."""
        return super().in_work(request) or any(entry[2] is request for entry in self._kept)

    def passed(self, done: list[Request], now: float) -> None:
        """Let go of those whose passes are over, or of all if nothing waits."""
        if self.role != PREFILL:
            super().passed(done, now)
            return
        self._passes += 1
        for request in done:
            request.reserved = False
            request.prefilled_at = now
            count, tokens, seconds = self.prefills
            self.prefills = (
                count + 1,
                tokens + request.tokens,
                seconds,
            )  # how long a pass took cannot be told from outside
            self.kv -= request.context  # it does not account for the KV of finished prompts
            heappush(self._kept, (self._passes + request.answer - 1, request.key, request))
        while self._kept and (self._kept[0][0] <= self._passes or not self.waiting):
            request = heappop(self._kept)[2]
            if request.gone:
                continue
            self.kv += request.context
            self.hold(request, now)


def replay(prefill: int, decode: int, *, artefact: bool = True) -> Result:
    """One row of the sweep; without its artefact, our own engine with the same constants."""

    def make(world: World, name: str, role: str, cache: PrefixCache | None) -> Replica:
        return DynamoReplica(name, role, DYNAMO, world, cache)

    scenario = Scenario(
        engine=DYNAMO,
        objectives=OBJECTIVES,
        initial={PREFILL: prefill, DECODE: decode},
        routing=Routing.ROUND_ROBIN,
    )
    return control(World(scenario, make if artefact else None), Static(), data.azure_code(10))


def sweep() -> dict[str, Any]:
    """All rows: ours beside Dynamo's, with and without the artefact."""
    rows = []
    for (prefill, decode), (attainment, hours) in GOLDEN.items():
        ours, clean = replay(prefill, decode), replay(prefill, decode, artefact=False)
        rows.append(
            {
                "ratio": f"{prefill}P{decode}D",
                "dynamo": [attainment, hours],
                "ours": [round(ours.attainment, 4), round(ours.accelerator_hours, 3)],
                "without_artefact": [round(clean.attainment, 4), round(clean.accelerator_hours, 3)],
                "difference": round(abs(ours.attainment - attainment), 4),
            }
        )
    worst = max(float(str(row["difference"])) for row in rows)
    return {"name": "dynamo-static", "ok": worst <= TOLERANCE, "worst": worst, "limit": TOLERANCE, "rows": rows}
