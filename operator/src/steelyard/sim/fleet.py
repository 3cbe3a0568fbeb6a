"""The replicas of a service: starting, ready, draining; which role each plays; what they cost.

As in the cluster, a replica is born in a pool, whose size is asked for, and plays a role, which can change. Asked for and
beyond the capacity waits until there is room. Law: never more replicas than the capacity, draining ones included.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from steelyard.sim.prefix import PrefixCache
from steelyard.sim.replica import Replica
from steelyard.sim.requests import Request
from steelyard.sim.scenario import Scenario
from steelyard.sim.store import Host

Make = Callable[[str, str, PrefixCache | None], Replica]


class State(StrEnum):
    """A replica's stage of life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Member:
    """A replica and its life. `role` is its label; the routers act on `replica.role`, which follows a moment later."""

    replica: Replica
    pool: str
    role: str
    state: State
    born: float
    ready_at: float = 0.0

    @property
    def load(self) -> tuple[int, int, str]:
        """What would be lost or waited for, least first."""
        return self.replica.outstanding + self.replica.kv, self.replica.sequences(), self.replica.name


class Fleet:
    """All replicas that exist. `changed` is called whenever the sets of usable replicas may differ."""

    def __init__(self, scenario: Scenario, host: Host, changed: Callable[[float], None], make: Make) -> None:
        self.scenario, self._host, self._changed, self._make = scenario, host, changed, make
        self.members: list[Member] = []
        self.asked: dict[str, int] = dict(scenario.initial)  # by pool
        self.role_changes = self.starts = self.stops = self.peak = 0
        self._preemptions = 0  # by replicas that are gone
        self._spent = 0.0  # accelerator-seconds of replicas that are gone
        self._serial = 0
        self._random = Random(f"fleet {scenario.seed}")
        for role, count in scenario.initial.items():
            for _ in range(count):
                member = self._new(role, 0.0)
                member.state = State.READY

    # --- what there is

    def ready(self, role: str) -> list[Replica]:
        """Replicas that may be sent work of a role now, oldest first."""
        return [m.replica for m in self.members if m.state is State.READY and m.replica.role == role]

    def labelled(self, role: str, *states: State) -> list[Member]:
        """Replicas whose label says a role, in any of these states."""
        return [m for m in self.members if m.role == role and m.state in states]

    def size(self, role: str) -> int:
        """Replicas of a role that are ready or coming."""
        return len(self.labelled(role, State.STARTING, State.READY))

    def accelerator_seconds(self, now: float) -> float:
        """Accelerator-seconds so far, from the start of each start-up to the end of each drain."""
        return self._spent + sum((now - m.born) * self._accelerators(m) for m in self.members)

    # --- what is done to it

    def relabel(self, changes: Iterable[tuple[str, str]], now: float) -> None:
        """Give replicas (by name) new roles; routers see it after the scenario's delay."""
        by_name = {m.replica.name: m for m in self.members}
        for name, role in changes:
            member = by_name.get(name)
            if member is not None and member.role != role:
                member.role = role
                self.role_changes += 1
                self._host.at(now + self.scenario.role_change_seconds, self._relabelled, member)

    def resize(self, pools: Mapping[str, int], now: float, remove: Iterable[str] = ()) -> None:
        """Ask for so many replicas of each pool. Who goes: those of `remove` first, then starting ones, newest first, then
        the least loaded."""
        first = {name: rank for rank, name in enumerate(remove)}
        for pool, count in pools.items():
            self.asked[pool] = max(0, count)
            there = [m for m in self.members if m.pool == pool and m.state in (State.STARTING, State.READY)]
            there.sort(key=lambda m: (first.get(m.replica.name, len(first)), m.state is State.READY, -m.born, *m.load))
            for member in there[: max(0, len(there) - count)]:
                self._stop(member, now)
        self._fill(now)
        self._changed(now)

    def fail(self, role: str, now: float) -> tuple[Replica, list[Request]] | None:
        """One ready replica of a role dies, and is replaced in its pool. Return it and the requests it had."""
        candidates = self.labelled(role, State.READY)
        if not candidates:
            return None
        member = self._random.choice(candidates)
        lost = member.replica.abandon()
        self._gone(member, now)
        self._fill(now)
        return member.replica, lost

    def reap(self, replica: Replica, now: float) -> None:
        """Remove a draining replica that has nothing left."""
        for member in self.members:
            if member.replica is replica:
                if member.state is State.DRAINING and replica.idle():
                    self._gone(member, now)
                    self._fill(now)
                return

    @property
    def preemptions(self) -> int:
        """Sequences that had to be computed again because KV was full."""
        return self._preemptions + sum(m.replica.preemptions for m in self.members)

    @property
    def draining(self) -> bool:
        """Whether some replica drains."""
        return any(m.state is State.DRAINING for m in self.members)

    # --- inside

    def _relabelled(self, now: float, member: Member) -> None:
        if member.state is not State.GONE and member.replica.role != member.role:
            member.replica.role = member.role
            self._changed(now)

    def _stop(self, member: Member, now: float) -> None:
        self.stops += 1
        if member.state is State.STARTING:
            self._gone(member, now)
            return
        member.state = State.DRAINING
        self.reap(member.replica, now)

    def _fill(self, now: float) -> None:
        for pool, count in self.asked.items():
            there = sum(1 for m in self.members if m.pool == pool and m.state in (State.STARTING, State.READY))
            for _ in range(count - there):
                if self.scenario.capacity is not None and len(self.members) >= self.scenario.capacity:
                    return
                member = self._new(pool, now)
                self.starts += 1
                seconds = self.scenario.startup_seconds
                if self.scenario.startup_spread:
                    seconds *= self._random.lognormvariate(0.0, self.scenario.startup_spread)
                self._host.at(now + seconds, self._ready, member)

    def _ready(self, now: float, member: Member) -> None:
        if member.state is State.STARTING:
            member.state, member.ready_at = State.READY, now
            member.replica.role = member.role
            self._changed(now)

    def _new(self, pool: str, now: float) -> Member:
        scenario = self.scenario
        cache = None
        if scenario.prefix_cache_tokens:
            cache = PrefixCache(scenario.prefix_cache_tokens, scenario.prefix_block_tokens)
        replica = self._make(f"r{self._serial:05d}", pool, cache)
        self._serial += 1
        member = Member(replica, pool, pool, State.STARTING, now)
        self.members.append(member)
        self.peak = max(self.peak, len(self.members))
        return member

    def _gone(self, member: Member, now: float) -> None:
        member.state = State.GONE
        self._spent += (now - member.born) * self._accelerators(member)
        self._preemptions += member.replica.preemptions
        self.members.remove(member)

    def _accelerators(self, member: Member) -> int:
        return self.scenario.accelerators.get(member.pool, 1)
