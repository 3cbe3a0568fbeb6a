"""What every policy is: at each tick it looks at the `Watch` and says what to do. Policies keep state of their own."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from steelyard.sim.fleet import State
from steelyard.sim.scenario import AGGREGATED, DECODE, PREFILL
from steelyard.sim.watch import Watch


@dataclass(frozen=True, slots=True)
class Action:
    """What to do: new roles (replica, role), sizes of pools, and who goes first."""

    pools: Mapping[str, int] = field(default_factory=dict)
    relabel: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a policy may go: replicas by role, and of all roles together."""

    least: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    budget: int | None = None

    def clamp(self, role: str, count: float) -> int:
        """Bring a number of replicas of a role into its bounds."""
        return int(min(max(count, self.least.get(role, 1)), self.most.get(role, 1000)))

    def within_budget(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Shrink the largest role until the budget holds."""
        fitted = dict(sizes)
        while self.budget is not None and sum(fitted.values()) > self.budget:
            role = max(fitted, key=lambda name: (fitted[name] - self.least.get(name, 1), name))
            if fitted[role] <= self.least.get(role, 1):
                break
            fitted[role] -= 1
        return fitted


class Policy(Protocol):
    """`tick` returns None to leave everything as it is."""

    def tick(self, now: float, watch: Watch) -> Action | None:
        """Decide with what can be known now."""


class Static:
    """Nothing ever changes."""

    def tick(self, now: float, watch: Watch) -> Action | None:
        """Leave everything as it is."""
        return None


class Stabilised:
    """A Kubernetes stabilisation window: the most that was wanted in the last `seconds`, seeded with what runs."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._wanted: deque[tuple[float, int]] = deque()

    def __call__(self, now: float, wanted: int, current: int) -> int:
        """Take in what is wanted now, and say what to do."""
        if not self._wanted:
            self._wanted.append((now, current))
        self._wanted.append((now, wanted))
        while self._wanted[0][0] < now - self._seconds - 1e-9:
            self._wanted.popleft()
        return max(count for _, count in self._wanted)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Replicas by role: ready, and ready or starting."""

    ready: dict[str, int]
    all: dict[str, int]
    front: str  # the role that takes prompts
    back: str  # the role that decodes

    @classmethod
    def of(cls, watch: Watch) -> "Numbers":
        """Count what the API server shows."""
        roles = watch.fleet.scenario.roles
        ready = {role: len(watch.fleet.labelled(role, State.READY)) for role in roles}
        front, back = (AGGREGATED, AGGREGATED) if AGGREGATED in roles else (PREFILL, DECODE)
        return cls(ready, {role: watch.fleet.size(role) for role in roles}, front, back)
