"""The first half of every decision: who is there, what has been learnt, what decode and prefill need now."""

from dataclasses import dataclass, replace

from steelyard.api.labels import AGGREGATED, DECODE, PREFILL
from steelyard.decide.scale import changes, learning, loss, unseen
from steelyard.decide.scale.capacity import Capacity, capacity
from steelyard.decide.scale.census import Census, count, deadline_seconds
from steelyard.decide.scale.decision import Memory, Tick
from steelyard.decide.scale.demand import Decode, decode_need, waiting
from steelyard.decide.scale.prefill import Prefill, patience_of, prefill
from steelyard.decide.scale.signals import Replica, Service, Signals
from steelyard.decide.scale.split import FILL
from steelyard.decide.scale.windows import Kept, Spans, most

LEAST_HORIZON_SECONDS, MOST_HORIZON_SECONDS = 120.0, 240.0  # H: of arrivals
LEAST_KEEP_SECONDS = (
    LEAST_HORIZON_SECONDS  # W: not less than H, for what a burst is held to need changes while it leaves H
)
STARTS = 2.0  # H and W are this many start-ups
BRIEF_STARTS, LEAST_BRIEF_SECONDS = 1.0, 60.0  # the shorter W, for needs that do not come back
STALE_SECONDS, STALE_INTERVALS = 15.0, 3.0
SAME_TICK_SECONDS = 2.0  # decisions closer together are one tick of history
SUM = ""  # the window of both roles together


@dataclass(frozen=True, slots=True)
class Scene:
    """What one tick looks at. `decode` and `prefill` are None where unknown: then nothing is sized."""

    service: Service
    signals: Signals
    census: Census
    have: dict[str, int]  # role → ready and coming replicas
    memory: Memory  # with what this tick has learnt
    start: float  # d
    spans: Spans  # W
    fresh: bool  # the samples are new enough
    reads: Capacity  # of a replica that prefills
    writes: Capacity  # of a replica that decodes
    decode: Decode | None
    prefill: Prefill | None

    @property
    def roles(self) -> tuple[str, ...]:
        """prefill and decode, or aggregated alone."""
        return tuple(self.service.limits.roles)

    @property
    def single(self) -> bool:
        """Whether every replica does both kinds of work."""
        return AGGREGATED in self.service.limits.roles

    @property
    def whole(self) -> bool:
        """Whether everything that a scale-down needs is known; a prefill replica without gauges may be busy as well."""
        if self.decode is None or self.prefill is None or self.decode.partial:
            return False
        return all(replica.running is not None for replica in self.census.ready)

    def kept(self, name: str) -> int:
        """What the last tick kept of a need."""
        kept = self.memory.needs.get(name)
        return most(kept, self.signals.time, self.spans) if kept else sum(self.have.values())

    def last_need(self, name: str) -> int:
        """What the last tick's present need was: a good guess of this one's."""
        kept = self.memory.needs.get(name)
        return kept.window[-1][1] if kept else sum(self.have.values())


def scene(service: Service, signals: Signals, memory: Memory) -> Scene:
    """Look around. Facts of the API server (pods, their start-up) are used even where metrics are stale."""
    roles = tuple(service.limits.roles)
    elapsed = signals.time - memory.ticks[-1].time if memory.ticks else learning.TICK_SECONDS
    learnt = learning.learn(memory.learnt, signals, service.engines, elapsed)
    past = signals.by_engines
    reading = service.engines.get(PREFILL) or service.engines[roles[0]]
    writing = service.engines.get(DECODE) or reading
    start = learning.start_seconds(learnt, max(e.start_seconds for e in service.engines.values()))
    census = count(signals, deadline_seconds(start, learnt.start_samples), memory.grew)
    memory = _engines_tell(memory, signals, census) if past else replace(memory, queues=(), full_since={}, full=None)
    most_of_full = unseen.most(memory.full, signals.time)
    reads = capacity(reading, learnt, service.objectives, most_of_full)
    writes = capacity(writing, learnt, service.objectives)

    fresh = is_fresh(signals)
    signals = unseen.with_queues(signals, memory.queues) if past else signals
    first = reads.model.prefill_seconds([signals.mean_uncached or 0.0])
    decoders = [r for r in census.ready if r.role != PREFILL or r.name in memory.conversions]
    decode = decode_need(signals, tuple(decoders), writes, start) if fresh else None
    if decode is not None:
        waits, starting = decode.waits > 0, bool(census.coming or census.unborn)
        objectives, patience = service.objectives, patience_of(service, first)
        if past and patience is not None:
            share = unseen.late(signals, _front(census), reads.velocity, patience)
            beta = unseen.feedback(learnt.beta, share, objectives.allowed_loss, elapsed, elsewhere=waits or starting)
        else:
            beta = min(learnt.beta, learning.BETA_MOST)
            beta = learning.feedback(beta, signals, objectives, elapsed, decode_waits=waits, starting=starting)
        learnt = replace(learnt, beta=beta)
    horizon = min(MOST_HORIZON_SECONDS, max(LEAST_HORIZON_SECONDS, STARTS * start))
    ticks = _ticks(memory.ticks, signals, decode, AGGREGATED in service.limits.roles, horizon)
    arrived = prefilling = None
    if fresh and ticks:
        arrived = loss.load(signals.arrivals, ticks, horizon)
        prefilling = prefill(signals, service, arrived, reads.velocity / learnt.beta, first)
    moved = changes.follow(memory, signals, decode.held if decode else writes.max_sequences)
    remembered = replace(
        memory,
        learnt=learnt,
        ticks=ticks,
        conversions=moved.pending,
        no_role_change_until=moved.paused_until,
    )
    have = {role: census.have(role) for role in roles}
    seen = Scene(
        service,
        signals,
        census,
        have,
        remembered,
        start,
        _spans(service, start),
        fresh,
        reads,
        writes,
        decode,
        prefilling,
    )
    return seen if memory.needs else replace(seen, memory=replace(remembered, needs=_seed(seen)))


def _front(census: Census) -> list[Replica]:
    """The ready replicas that prompts come to."""
    return [replica for replica in census.ready if replica.role != DECODE]


def _engines_tell(memory: Memory, signals: Signals, census: Census) -> Memory:
    """Add what the engines tell of requests that no gateway of ours sees. An aggregated replica that is full shows no speed of
    prefill: it shares its time with decode. So does one that holds prompts back because decode is full."""
    since = unseen.full_since(memory.full_since, signals, PREFILL)
    full = memory.full if waiting(signals) else unseen.full(memory.full, since, signals, PREFILL)
    seen = unseen.queues(memory.queues, signals, _front(census))
    return replace(memory, queues=seen, full_since=since, full=full)


def _spans(service: Service, start: float) -> Spans:
    """W by start-up. Where roles never change, one role's need cannot be met by what the other spares: W is always long."""
    long = max(LEAST_KEEP_SECONDS, STARTS * start)
    return Spans(max(LEAST_BRIEF_SECONDS, BRIEF_STARTS * start) if service.limits.role_change else long, long, start)


def is_fresh(signals: Signals) -> bool:
    """Whether the newest sample is young enough to decide on."""
    limit = max(STALE_SECONDS, STALE_INTERVALS * (signals.scrape_interval or 0.0))
    return signals.sample_age is not None and signals.sample_age <= limit


def _seed(seen: Scene) -> dict[str, Kept]:
    """Begin the windows with the present size: shrinking before any history exists is the classic fault of a restart."""
    now = seen.signals.time
    sizes = {SUM: sum(seen.have.values()), **seen.have}
    return {name: Kept(((now, size),)) for name, size in sizes.items()}


def _ticks(
    before: tuple[Tick, ...], signals: Signals, decode: Decode | None, single: bool, horizon: float
) -> tuple[Tick, ...]:
    """Add this tick's decode need, in replicas that decode takes at that time (shared ones: a fraction)."""
    now = signals.time
    kept = [tick for tick in before if now - horizon <= tick.time < now]
    if decode is None:
        return tuple(kept)
    if len(kept) > 1 and now - kept[-1].time < SAME_TICK_SECONDS:
        kept.pop()
    need = decode.total / FILL
    taken = need if single else float(max(1, -int(-(need - 1e-9) // 1)))
    return (*kept, Tick(now, signals.uncached_rate, taken))
