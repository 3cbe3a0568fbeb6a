"""All of feasibility in one call: findings of each side and of the pair, memory of each side, and how far objectives reach."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from steelyard.decide.feasibility.findings import Finding
from steelyard.decide.feasibility.fit import fits
from steelyard.decide.feasibility.inputs import Pair, Side, Targets
from steelyard.decide.feasibility.memory import Memory, memory
from steelyard.decide.feasibility.numbers import numbers
from steelyard.decide.feasibility.pairing import pairs
from steelyard.decide.feasibility.reach import Reach, reach
from steelyard.decide.feasibility.spread import spreads

EMBEDDED = (
    "llama-cpp"  # its weights and cache lie in the pod's own memory, in the format of a file that only the pod reads
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of a service before it runs. `memory` by role; `reach` None: not enough facts."""

    findings: tuple[Finding, ...] = ()
    memory: Mapping[str, Memory] = field(default_factory=dict)
    reach: Reach | None = None

    @property
    def refused(self) -> tuple[Finding, ...]:
        """Findings that keep the service from being served."""
        return tuple(finding for finding in self.findings if finding.refused)

    @property
    def warned(self) -> tuple[Finding, ...]:
        """Findings that are only told."""
        return tuple(finding for finding in self.findings if not finding.refused)


def judge(sides: tuple[Side, ...], pair: Pair | None, targets: Targets) -> Judgement:
    """Judge one side for an aggregated service, prefill and decode with their pair for a disaggregated one."""
    findings: dict[Finding, None] = {}
    counted = {}
    for side in sides:
        found = [*spreads(side), *numbers(side)]
        if side.engine != EMBEDDED and not any(finding.refused for finding in found):
            found += fits(side)
            if (size := memory(side)) is not None:
                counted[side.role] = size
        findings.update(dict.fromkeys(found))
    if pair is not None:
        findings.update(dict.fromkeys(pairs(pair)))
    return Judgement(tuple(findings), counted, reach(sides[0], sides[-1], targets) if sides else None)
