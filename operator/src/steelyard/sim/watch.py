"""What a monitoring system knows: the last scrapes, rates over windows of them, and their age. Never the future.

Counters are copied at each scrape, so nothing is known between scrapes or of the step under way. The pods of the API server
and the gateways' arrival windows are not scraped; policies read them at their tick, as the operator does.
"""

from collections import deque
from dataclasses import dataclass

from steelyard.decide.queue.windows import WINDOW_SECONDS, WINDOWS
from steelyard.sim.fleet import Fleet, Member, State
from steelyard.sim.router import Depth
from steelyard.sim.world import World

KEPT_SECONDS = 400.0


@dataclass(frozen=True, slots=True)
class Pod:
    """One replica's series in one scrape. Counters since its start; the gauges are of the moment."""

    name: str
    role: str
    running: int
    waiting: int
    kv_use: float
    outstanding: int
    generated: int
    token_seconds: float
    busy_seconds: float
    prefills: int  # prompts computed, their uncached tokens, and their seconds in passes
    prefill_tokens: int
    prefill_seconds: float


@dataclass(frozen=True, slots=True)
class Scrape:
    """Everything of one scrape; counters of the whole service."""

    at: float
    arrived: int
    uncached_tokens: int
    prompt_tokens: int  # of those that arrived
    ended: int
    completed: int
    answer_tokens: int  # of those that completed
    met: int
    ttft_met: int
    tpot_met: int
    generated: int  # by all replicas, those that are gone too
    depth: Depth
    pods: dict[str, Pod]


class Watch:
    """Scrapes of the last minutes, and what is asked live."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.fleet: Fleet = world.fleet
        self.scrapes: deque[Scrape] = deque()
        self._generated = 0
        self._last: dict[str, int] = {}  # generated tokens by replica at the last scrape
        self._first_at = max(0.0, world.scenario.scrape_seconds - world.scenario.scrape_age_seconds)
        world.at(self._first_at, self._begin)

    def _begin(self, now: float) -> None:
        self.scrape(now)
        self._world.every(self._world.scenario.scrape_seconds, self.scrape)

    def scrape(self, now: float) -> None:
        """Take a sample, unless metrics are out."""
        if any(begin <= now < end for begin, end in self._world.scenario.stale):
            return
        pods = {m.replica.name: _pod(m, now) for m in self.fleet.members if m.state is not State.STARTING}
        self._generated += sum(pod.generated - self._last.get(name, 0) for name, pod in pods.items())
        self._last = {name: pod.generated for name, pod in pods.items()}
        record = self._world.record
        self.scrapes.append(
            Scrape(
                at=now,
                arrived=record.arrived,
                uncached_tokens=record.uncached_tokens,
                prompt_tokens=record.arrived_prompt_tokens,
                ended=record.ended,
                completed=record.completed,
                answer_tokens=record.answer_tokens,
                met=record.met,
                ttft_met=record.ttft_met,
                tpot_met=record.tpot_met,
                generated=self._generated,
                depth=self._world.depth(),
                pods=pods,
            )
        )
        while self.scrapes[0].at < now - KEPT_SECONDS:
            self.scrapes.popleft()

    # --- scraped

    @property
    def newest(self) -> Scrape | None:
        """The last scrape; None before the first."""
        return self.scrapes[-1] if self.scrapes else None

    def before(self, seconds: float) -> Scrape | None:
        """The scrape that a window of `seconds` begins with, or the oldest there is; None if there is only one."""
        if len(self.scrapes) < 2:
            return None
        newest = self.scrapes[-1].at
        for scrape in reversed(self.scrapes):
            if newest - scrape.at >= seconds - 1e-6:
                return scrape
        return self.scrapes[0]

    def increase(self, counter: str, seconds: float) -> float:
        """How much a counter of the service rose in the last `seconds` of scrapes."""
        first = self.before(seconds)
        return float(getattr(self.scrapes[-1], counter) - getattr(first, counter)) if first is not None else 0.0

    def rate(self, counter: str, seconds: float) -> float:
        """How fast it rises, per second."""
        first = self.before(seconds)
        if first is None:
            return 0.0
        last = self.scrapes[-1]
        return float(getattr(last, counter) - getattr(first, counter)) / (last.at - first.at)

    def span(self, seconds: float) -> float:
        """The true length of a window of `seconds`; 0 before there is one."""
        first = self.before(seconds)
        return self.scrapes[-1].at - first.at if first is not None else 0.0

    # --- live

    def arrivals(self, now: float) -> tuple[float, ...] | None:
        """Uncached tokens of the complete quarter-second windows until now, oldest first; None without our gateways."""
        gateways = self._world.gateways
        if not gateways:
            return None
        known = min(WINDOWS, int(now / WINDOW_SECONDS))
        tables = [gateway.windows.complete(now)[1][WINDOWS - known :] for gateway in gateways]
        return tuple(tables[0] if len(tables) == 1 else map(sum, zip(*tables, strict=True)))


def _pod(member: Member, now: float) -> Pod:
    replica = member.replica
    count, tokens, seconds = replica.prefills
    return Pod(
        name=replica.name,
        role=member.role,
        running=replica.running + replica.in_pass(),
        waiting=len(replica.waiting) + len(replica.incoming) + len(replica.landing) + len(replica.landed),
        kv_use=replica.kv_by(now) / replica.engine.kv_tokens,
        outstanding=replica.outstanding,
        generated=replica.generated_by(now),
        token_seconds=replica.token_seconds_by(now),
        busy_seconds=replica.busy_by(now),
        prefills=count,
        prefill_tokens=tokens,
        prefill_seconds=seconds,
    )
