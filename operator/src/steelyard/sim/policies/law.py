"""Steelyard's own law: the very `decide` that the operator runs, its signals filled from the simulator's monitoring."""

from collections.abc import Mapping
from dataclasses import replace

from steelyard.decide.scale import signals as law
from steelyard.decide.scale.decision import Decision, Memory
from steelyard.decide.scale.law import decide
from steelyard.sim.fleet import Member, State
from steelyard.sim.policies.policy import Action
from steelyard.sim.scenario import AGGREGATED, DECODE, PREFILL, Routing
from steelyard.sim.watch import Pod, Watch

SPAN_SECONDS = 20.0  # of rates: four scrapes of five seconds
RATE_SECONDS = 15.0  # of the rate that is read from exact windows
MEANS_SECONDS = 300.0
JUDGED_SECONDS = 60.0
TICK_SECONDS = 5.0
GROUP = "g"
PHASES = {State.STARTING: law.Phase.STARTING, State.READY: law.Phase.READY, State.DRAINING: law.Phase.DRAINING}


class Law:
    """One service's autoscaler. `decisions` counts by the term that ruled; `last` is the newest decision."""

    def __init__(self, asked: law.Service) -> None:
        self.asked = asked
        self.memory = Memory()
        self.mean_uncached: float | None = None
        self.last: Decision | None = None
        self.ruled: dict[str, int] = {}

    def tick(self, now: float, watch: Watch) -> Action | None:
        """Decide as the operator does."""
        found = look(now, watch, self.mean_uncached)
        self.mean_uncached = found.mean_uncached
        decision = decide(self.asked, found, self.memory)
        self.memory, self.last = decision.memory, decision
        self.ruled[decision.ruled] = self.ruled.get(decision.ruled, 0) + 1
        return Action(decision.pools, decision.relabel, decision.remove) if decision.act else None


def look(now: float, watch: Watch, mean_uncached: float | None = None) -> law.Signals:
    """Fill the law's signals as `observe` fills them: the same spans, the same rules of what is unknown. `mean_uncached` is
    what the last look found."""
    newest, before = watch.newest, watch.before(SPAN_SECONDS)
    arrived = watch.arrivals(now)
    series = _Series(newest.pods if newest else {}, before.pods if before else {}, watch.span(SPAN_SECONDS))
    back = watch.fleet.scenario.roles[-1]
    means = watch.before(MEANS_SECONDS) is not None
    found = law.Signals(
        time=now,
        replicas=tuple(_replica(member, series) for member in watch.fleet.members),
        asked=dict(watch.fleet.asked),
        sample_age=None if newest is None else now - newest.at,
        scrape_interval=watch.fleet.scenario.scrape_seconds,
        arrivals=arrived,
        uncached_rate=_recent(arrived) if arrived else watch.rate("uncached_tokens", SPAN_SECONDS) if before else None,
        request_rate=watch.rate("arrived", SPAN_SECONDS) if before is not None else None,
        generated_rate=series.total("generated", back),
        decode_inflow=series.total("running", back),
        mean_uncached=_mean(watch, "uncached_tokens", "arrived") if means else None,
        mean_prompt=_mean(watch, "prompt_tokens", "arrived") if means else None,
        mean_output=_mean(watch, "answer_tokens", "completed") if means else None,
        prefill_queue=None if newest is None else newest.depth.prefill + series.waiting(watch, PREFILL, AGGREGATED),
        prefill_queue_tokens=None if newest is None else newest.depth.prefill_tokens,
        decode_queue=None if newest is None else newest.depth.decode + series.waiting(watch, DECODE),
        ttft_met=watch.increase("ttft_met", JUDGED_SECONDS) if before is not None else None,
        ttft_judged=watch.increase("ended", JUDGED_SECONDS) if before is not None else None,
    )
    return (
        found if watch.fleet.scenario.routing is Routing.GATEWAY else _past_our_gateways(found, series, mean_uncached)
    )


def _past_our_gateways(found: law.Signals, series: "_Series", mean_uncached: float | None) -> law.Signals:
    """What is left where another router sends the requests, as `observe` has it: arrivals are what the prefill replicas
    finish, whoever waits does so inside the engines, nobody tells of lengths, and nobody judges."""
    ready = [r for r in found.replicas if r.phase is law.Phase.READY]
    front = AGGREGATED if AGGREGATED in found.asked else PREFILL
    tokens, prompts = series.total("prefill_tokens", front), series.total("prefills", front)
    return replace(
        found,
        by_engines=True,
        uncached_rate=tokens,
        request_rate=prompts,
        mean_uncached=tokens / prompts if tokens is not None and prompts else mean_uncached,
        mean_prompt=None,
        mean_output=None,
        prefill_queue=sum(r.waiting or 0.0 for r in ready if r.role != DECODE),
        prefill_queue_tokens=0.0,
        decode_queue=sum(r.waiting or 0.0 for r in ready if r.role == DECODE),
        ttft_met=None,
        ttft_judged=None,
    )


class _Series:
    """The series of pods in the newest scrape and in the one that a span begins with."""

    def __init__(self, newest: Mapping[str, Pod], before: Mapping[str, Pod], span: float) -> None:
        self.newest, self.before, self.span = newest, before, span

    def rise(self, name: str, counter: str) -> float | None:
        """How much a pod's series rose; None where it is younger than the span, or there is no span yet."""
        if name not in self.newest or name not in self.before:
            return None
        return float(getattr(self.newest[name], counter) - getattr(self.before[name], counter))

    def total(self, series: str, role: str) -> float | None:
        """The rate of a series over the pods of a role; None where one that runs something is too young to have one."""
        if not self.span:
            return None
        parts = 0.0
        for name, pod in self.newest.items():
            if pod.role != role:
                continue
            rise = self.rise(name, series)
            if rise is None and pod.running:
                return None
            parts += rise or 0.0
        return parts / self.span

    def waiting(self, watch: Watch, *roles: str) -> int:
        """Requests that wait inside the ready pods of some roles."""
        ready = {m.replica.name for role in roles for m in watch.fleet.labelled(role, State.READY)}
        return sum(pod.waiting for name, pod in self.newest.items() if name in ready)


def _replica(member: Member, series: _Series) -> law.Replica:
    name = member.replica.name
    pod = series.newest.get(name)
    tokens, seconds = series.rise(name, "generated"), series.rise(name, "token_seconds")
    step = seconds / tokens if tokens and seconds else None
    start = None
    if member.state is not State.STARTING and member.ready_at > member.born:
        start = law.StartUp(scheduling=0.0, loading=0.0, warming=member.ready_at - member.born)
    return law.Replica(
        name=name,
        pool=member.pool,
        role=member.role,
        kv_group=GROUP,
        phase=PHASES[member.state],
        since=member.born if member.state is State.STARTING else member.ready_at,
        running=None if pod is None else pod.running,
        waiting=None if pod is None else pod.waiting,
        kv_use=None if pod is None else pod.kv_use,
        step_seconds=step,
        passes=_passes(member, series),
        prefill_rate=_prefill_rate(member, series),
        start=start,
    )


def _passes(member: Member, series: _Series) -> law.Passes | None:
    """From per-request figures, as engines tell them: tokens of a prompt, and its time in prefill without waiting."""
    name = member.replica.name
    count, tokens, seconds = (series.rise(name, c) for c in ("prefills", "prefill_tokens", "prefill_seconds"))
    if member.role == DECODE or not count or not seconds or tokens is None:
        return None
    return law.Passes(tokens=tokens / count, seconds=seconds / count, count=count * TICK_SECONDS / series.span)


def _prefill_rate(member: Member, series: _Series) -> float | None:
    tokens = None if member.role == DECODE else series.rise(member.replica.name, "prefill_tokens")
    return tokens / series.span if tokens is not None and series.span else None


def _recent(arrived: tuple[float, ...]) -> float:
    """The rate of uncached tokens in the exact windows of the last fifteen seconds."""
    return sum(arrived[-round(RATE_SECONDS / law.WINDOW_SECONDS) :]) / RATE_SECONDS


def _mean(watch: Watch, total: str, count: str) -> float | None:
    """The mean of the last minutes, or, in an idle time, of all that was scraped."""
    number = watch.increase(count, MEANS_SECONDS)
    if number > 0:
        return watch.increase(total, MEANS_SECONDS) / number
    newest = watch.newest
    known = getattr(newest, count) if newest is not None else 0
    return getattr(newest, total) / known if known else None
