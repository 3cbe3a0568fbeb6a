"""Steelyard's own law: the very `decide` that the operator runs, its signals filled from the simulator's monitoring."""

from collections.abc import Mapping

from steelyard.decide.scale import signals as law
from steelyard.decide.scale.decision import Decision, Memory
from steelyard.decide.scale.law import decide
from steelyard.sim.fleet import Member, State
from steelyard.sim.policies.policy import Action
from steelyard.sim.watch import Pod, Watch

RATE_SECONDS = 20.0  # four scrapes of five seconds
JUDGED_SECONDS = 60.0
GROUP = "g"
PHASES = {State.STARTING: law.Phase.STARTING, State.READY: law.Phase.READY, State.DRAINING: law.Phase.DRAINING}


class Law:
    """One service's autoscaler. `decisions` counts by the term that ruled; `last` is the newest decision."""

    def __init__(self, asked: law.Service) -> None:
        self.asked = asked
        self.memory = Memory()
        self.last: Decision | None = None
        self.ruled: dict[str, int] = {}

    def tick(self, now: float, watch: Watch) -> Action | None:
        """Decide as the operator does."""
        decision = decide(self.asked, look(now, watch), self.memory)
        self.memory, self.last = decision.memory, decision
        self.ruled[decision.ruled] = self.ruled.get(decision.ruled, 0) + 1
        return Action(decision.pools, decision.relabel, decision.remove) if decision.act else None


def look(now: float, watch: Watch) -> law.Signals:
    """Fill the law's signals from what monitoring and the API server show."""
    newest, scenario = watch.newest, watch.fleet.scenario
    arrived = watch.increase("arrived", RATE_SECONDS)
    completed = watch.increase("completed", RATE_SECONDS)
    before = watch.before(RATE_SECONDS)
    inflow = None
    if before is not None and newest is not None:
        begun = _rise(before.pods, newest.pods, "began") - _rise(before.pods, newest.pods, "over")
        inflow = begun / (newest.at - before.at)
    return law.Signals(
        time=now,
        replicas=tuple(
            _replica(member, newest.pods if newest else {}, before.pods if before else {})
            for member in watch.fleet.members
        ),
        asked=dict(watch.fleet.asked),
        sample_age=None if newest is None else now - newest.at,
        scrape_interval=scenario.scrape_seconds,
        arrivals=watch.arrivals(now),
        uncached_rate=watch.rate("uncached_tokens", RATE_SECONDS) if before is not None else None,
        request_rate=watch.rate("arrived", RATE_SECONDS) if before is not None else None,
        generated_rate=watch.rate("generated", RATE_SECONDS) if before is not None else None,
        decode_inflow=inflow,
        mean_uncached=_mean(watch, "uncached_tokens", "arrived", arrived),
        mean_prompt=_mean(watch, "prompt_tokens", "arrived", arrived),
        mean_output=_mean(watch, "answer_tokens", "completed", completed),
        prefill_queue=None if newest is None else newest.depth.prefill + _waiting(newest.pods, decode=False),
        prefill_queue_tokens=None if newest is None else newest.depth.prefill_tokens,
        decode_queue=None if newest is None else newest.depth.decode + _waiting(newest.pods, decode=True),
        ttft_met=watch.increase("ttft_met", JUDGED_SECONDS) if before is not None else None,
        ttft_judged=watch.increase("ended", JUDGED_SECONDS) if before is not None else None,
    )


def _replica(member: Member, newest: Mapping[str, Pod], before: Mapping[str, Pod]) -> law.Replica:
    name = member.replica.name
    pod, old = newest.get(name), before.get(name)
    step = passes = start = None
    if pod is not None and old is not None:
        tokens = pod.generated - old.generated
        seconds = pod.token_seconds - old.token_seconds
        step = seconds / tokens if tokens > 0 and seconds > 0 else None
        count = pod.passes - old.passes
        if count > 0:
            passes = law.Passes(
                tokens=(pod.pass_tokens - old.pass_tokens) / count,
                seconds=(pod.pass_seconds - old.pass_seconds) / count,
                count=count,
            )
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
        outstanding_tokens=None if pod is None else pod.outstanding,
        step_seconds=step,
        passes=passes,
        start=start,
    )


def _waiting(pods: Mapping[str, Pod], *, decode: bool) -> int:
    """Requests that wait inside engines: sequences without a first step, or prompts."""
    return sum(pod.incoming if decode else pod.waiting - pod.incoming for pod in pods.values())


def _rise(before: Mapping[str, Pod], newest: Mapping[str, Pod], counter: str) -> int:
    """The rise of a counter over all pods that are there at the end; a new pod's began at zero."""
    return sum(
        getattr(pod, counter) - (getattr(before[name], counter) if name in before else 0)
        for name, pod in newest.items()
    )


def _mean(watch: Watch, total: str, count: str, recent: float) -> float | None:
    """The mean over the last windows, or over all that was scraped where nothing came lately."""
    if recent > 0:
        return watch.increase(total, RATE_SECONDS) / recent
    newest = watch.newest
    known = getattr(newest, count) if newest is not None else 0
    return getattr(newest, total) / known if known else None
