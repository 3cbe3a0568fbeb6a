"""Readings of Prometheus joined with the pods that exist: the `Signals` of one service at one tick.

Roles come from the API server and never from a metric; rows of pods that do not exist are never looked at. A sum over pods
is unknown as soon as one part of it is. Where another router sends requests past our gateways, arrivals are what the prefill
replicas finish.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from steelyard.api.labels import AGGREGATED, DECODE, PREFILL
from steelyard.decide.scale.signals import WINDOW_SECONDS, Passes, Phase, Replica, Signals
from steelyard.observe.readings import Readings, span_of
from steelyard.observe.replicas import Engine, Gateway

COVERED = 0.7  # of a span that samples must cover for a rate to count: a younger series gives too little
RATE_SECONDS = 15  # of the rate that is read from exact windows
FRESH_SECONDS = 15.0
FRESH_INTERVALS = 3
SAME_SECONDS = 0.5  # a sample seen again through two clocks differs by less
GAPS = 3  # scrapes whose distance is remembered


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered of a service from tick to tick: lengths through idle times, and when its samples came."""

    mean_uncached: float | None = None
    mean_prompt: float | None = None
    mean_output: float | None = None
    pod: str = ""  # whose samples are timed
    sampled: float = 0.0  # when the newest one was taken
    gaps: tuple[float, ...] = ()
    passed_by: bool = False  # by requests that another router sends

    @property
    def interval(self) -> float | None:
        """Seconds between two scrapes as measured; unknown before two were seen."""
        return median(self.gaps) if self.gaps else None


@dataclass(frozen=True, slots=True)
class Pods:
    """One service's pods, as the API server told of them last."""

    namespace: str
    service: str
    engines: tuple[Engine, ...]
    gateways: tuple[Gateway, ...]
    asked: Mapping[str, int]  # pool → replicas of its Deployment or LeaderWorkerSet
    grouped: frozenset[str] = frozenset()  # pools that are LeaderWorkerSets


def signals(
    pods: Pods, readings: Readings, arrivals: tuple[float, ...] | None, kept: Kept, now: float, tick_seconds: float
) -> tuple[Signals, Kept]:
    """Join everything that is known of a service at `now` (unix seconds); also what to remember for the next tick."""
    ages = _ages(pods, readings, now)
    asked, kept = span_of(kept.interval), _timed(kept, ages, now)
    look = _Look(pods, readings, kept, ages, now, asked)
    kept = replace(kept, passed_by=look.passed_by(arrivals))
    if kept.passed_by:
        pods, arrivals = replace(pods, gateways=()), None
    look = _Look(pods, readings, kept, ages, now, asked)
    kept = look.lengths(arrivals)
    replicas = tuple(look.replica(engine, tick_seconds) for engine in pods.engines)
    by_gateway = look.arrivals_known()
    rate = sum(arrivals[-round(RATE_SECONDS / WINDOW_SECONDS) :]) / RATE_SECONDS if arrivals else None
    judged = look.judged()
    found = Signals(
        time=now,
        replicas=replicas,
        asked=dict(pods.asked),
        sample_age=min(ages.values(), default=now - kept.sampled if kept.sampled else None),
        scrape_interval=kept.interval,
        arrivals=arrivals,
        uncached_rate=rate if rate is not None else look.arriving("uncached", "computed", by_gateway),
        request_rate=look.arriving("arrived", "prefills", by_gateway),
        generated_rate=look.total(replicas, "generated", (DECODE, AGGREGATED), covered=True),
        decode_inflow=look.total(replicas, "inflow", (DECODE, AGGREGATED), covered=False),
        mean_uncached=kept.mean_uncached,
        mean_prompt=kept.mean_prompt,
        mean_output=kept.mean_output,
        prefill_queue=look.queue(replicas, "queued_requests", PREFILL, (PREFILL, AGGREGATED)),
        prefill_queue_tokens=look.in_gateways("queued_tokens", PREFILL),
        decode_queue=look.queue(replicas, "queued_requests", DECODE, (DECODE,)),
        by_engines=kept.passed_by,
        ttft_met=judged[0] if judged else None,
        ttft_judged=judged[1] if judged else None,
    )
    return found, kept


def fresh_seconds(interval: float | None) -> float:
    """How old a sample may be to count as what is now."""
    return max(FRESH_SECONDS, FRESH_INTERVALS * (interval or 0.0))


def _ages(pods: Pods, readings: Readings, now: float) -> dict[str, float]:
    """Seconds since each pod's newest sample; one from before the pod was created is of an older one of that name."""
    created = {e.replica.name: e.created for e in pods.engines} | {g.name: g.created for g in pods.gateways}
    known = ((name, readings.value("age", pods.namespace, pods.service, name)) for name in created)
    return {name: age for name, age in known if age is not None and now - age >= created[name]}


def _timed(kept: Kept, ages: Mapping[str, float], now: float) -> Kept:
    """Time one pod's samples: the distance of two that follow each other is the scrape interval."""
    name = kept.pod if kept.pod in ages else min(ages, key=lambda pod: (ages[pod], pod), default="")
    if not name:
        return kept
    sampled = now - ages[name]
    if name != kept.pod:
        return replace(kept, pod=name, sampled=sampled)
    gap = sampled - kept.sampled
    if gap < SAME_SECONDS:
        return kept
    return replace(kept, sampled=sampled, gaps=(*kept.gaps, gap)[-GAPS:])


class _Look:
    """Readings about one service, pod by pod."""

    def __init__(
        self, pods: Pods, readings: Readings, kept: Kept, ages: Mapping[str, float], now: float, asked: int
    ) -> None:
        """`asked` is the span that was asked for; the interval seen now may want another, from the next tick on."""
        self._pods = pods
        self._readings = readings
        self._kept = kept
        self._interval = kept.interval
        self._ages = ages
        self._now = now
        self._key = (pods.namespace, pods.service)
        self._span = asked

    def passed_by(self, arrivals: tuple[float, ...] | None) -> bool:
        """Whether requests reach the prefill replicas from elsewhere: no gateway has counted one for minutes, and they work.

        From then on until a gateway counts one: a replica that is too young to have rates changes nothing, nor does a gateway
        that is down.
        """
        counted = self._readings.value("arrivals", *self._key)
        if counted or (arrivals is not None and any(arrivals)):
            return False
        if self._kept.passed_by or not self._pods.gateways:
            return self._kept.passed_by
        return counted == 0 and arrivals is not None and bool(self._on_prefill("prefills"))

    def lengths(self, arrivals: tuple[float, ...] | None) -> Kept:
        """Means of lengths; in an idle time there is none, and the last known one stays (A02)."""
        uncached, prompt, output = (
            self._readings.value(name, *self._key) for name in ("mean_uncached", "mean_prompt", "mean_output")
        )
        requests = self._readings.value("arrivals", *self._key)
        if arrivals is not None and requests:
            uncached = sum(arrivals) / requests  # the windows are corrected by what engines found cached
        elif not self._pods.gateways:
            computed, prefills = (self._on_prefill(name) for name in ("computed", "prefills"))
            uncached = computed / prefills if computed is not None and prefills else None
        kept = self._kept
        return replace(
            kept,
            mean_uncached=kept.mean_uncached if uncached is None else uncached,
            mean_prompt=kept.mean_prompt if prompt is None else prompt,
            mean_output=kept.mean_output if output is None else output,
        )

    def replica(self, engine: Engine, tick_seconds: float) -> Replica:
        """The pod with its gauges, as far as they are fresh: found within three quarters of the span.

        Of a pod whose last scrape failed the age is not known. What is found about one that is younger than the span may
        be about an older pod of the same name.
        """
        bare = engine.replica
        age = self._ages.get(bare.name)
        young = self._now - engine.created < self._span
        if (age is None and young) or (age is not None and age > fresh_seconds(self._interval)):
            return bare
        return replace(
            bare,
            running=self._over("running", bare.name),
            waiting=self._over("waiting", bare.name),
            kv_use=self._over("kv_use", bare.name),
            outstanding_tokens=self._over("outstanding", bare.name) if self._gateways_sampled() else None,
            step_seconds=self._rate("step_seconds", bare.name),
            passes=self._passes(bare, tick_seconds),
            prefill_rate=self._rate("computed", bare.name) if bare.role != DECODE else None,
        )

    def total(self, replicas: Iterable[Replica], name: str, roles: tuple[str, ...], covered: bool) -> float | None:
        """Sum a rate over the replicas of some roles; unknown where one that serves has none."""
        parts = []
        for replica in replicas:
            if replica.role not in roles or replica.phase not in (Phase.READY, Phase.DRAINING):
                continue
            value = self._rate(name, replica.name) if covered else self._over(name, replica.name)
            if value is None and replica.running != 0 and replica.phase is Phase.READY:
                return None
            parts.append(value or 0.0)
        return sum(parts) if parts else None

    def _gateways_sampled(self) -> bool:
        """Whether no gateway's part of a sum is missing."""
        return all(gateway.name in self._ages for gateway in self._pods.gateways)

    def arrivals_known(self) -> bool:
        """Whether every gateway has been sampled long enough for sums over them to be rates."""
        return bool(self._pods.gateways) and all(self._covered(gateway.name) for gateway in self._pods.gateways)

    def arriving(self, at_gateways: str, at_engines: str, known: bool) -> float | None:
        """A rate of arrivals: at the gateways, or, where a service has none, at the prefill replicas."""
        if self._pods.gateways:
            return self._readings.over(self._span, at_gateways, *self._key) if known else None
        return self._on_prefill(at_engines)

    def queue(self, replicas: Iterable[Replica], name: str, queue: str, roles: tuple[str, ...]) -> float | None:
        """Requests that wait for a role: in the gateways and inside its ready replicas."""
        held = self.in_gateways(name, queue)
        inside = [r.waiting for r in replicas if r.role in roles and r.phase is Phase.READY]
        if held is None or None in inside:
            return None
        return held + sum(value for value in inside if value is not None)

    def in_gateways(self, name: str, queue: str) -> float | None:
        """What the gateways hold for a role; nothing where there are none."""
        return self._readings.over(self._span, name, *self._key, queue) if self._pods.gateways else 0.0

    def judged(self) -> tuple[float, float] | None:
        """(met TTFT, judged) in the last minute; 0 of 0 where a scraped gateway has judged nothing yet."""
        met, missed = (self._readings.value("ttft_judged", *self._key, word) for word in ("true", "false"))
        if met is None and missed is None:
            scraped = any(gateway.name in self._ages for gateway in self._pods.gateways)
            return (0.0, 0.0) if scraped and "ttft_judged" in self._readings.now else None
        return (met or 0.0), (met or 0.0) + (missed or 0.0)

    def _passes(self, replica: Replica, tick_seconds: float) -> Passes | None:
        if replica.role not in (PREFILL, AGGREGATED):
            return None
        names = ("prefills", "prefill_seconds", "computed")
        count, seconds, computed = (self._rate(name, replica.name) for name in names)
        if not count or not seconds or computed is None:
            return None
        return Passes(tokens=computed / count, seconds=seconds, count=count * tick_seconds)

    def _on_prefill(self, name: str) -> float | None:
        serving = [e.replica for e in self._pods.engines if e.replica.role in (PREFILL, AGGREGATED)]
        parts = [self._rate(name, r.name) for r in serving if r.phase is Phase.READY]
        return sum(p for p in parts if p is not None) if parts and None not in parts else None

    def _rate(self, name: str, pod: str) -> float | None:
        return self._over(name, pod) if self._covered(pod) else None

    def _covered(self, pod: str) -> bool:
        """Whether samples of the pod fill the span; a rate over a younger series is too small (A07, A40)."""
        samples, interval = self._over("samples", pod), self._interval
        return samples is not None and interval is not None and samples * interval >= COVERED * self._span

    def _over(self, name: str, pod: str) -> float | None:
        return self._readings.over(self._span, name, *self._key, pod)
