"""Places exchanges: the queues of `decide` joined with real pods, clocks and clients.

Everything runs on one loop, so an event is handled whole before the next: it changes a queue, and `pump` then carries out
what the queues decide. The router also learns from every leg (tokens per byte, prefill and hand-off times) and judges
every request as it ends.
"""

import asyncio
import logging
import time

from steelyard.api import labels
from steelyard.decide.admission import DecodeQueue, Sequence
from steelyard.decide.dispatch import Job, PrefillQueue
from steelyard.decide.estimate import PrefillTime, Smoothed, TokenRatio, theta_seconds
from steelyard.decide.judge import Outcome, Timing, judge, length_class, mean_seconds_per_token
from steelyard.decide.windows import ArrivalWindows
from steelyard.gateway.affinity import PrefixTable, prompt_blocks
from steelyard.gateway.errors import ClientError
from steelyard.gateway.exchange import Exchange, Leg
from steelyard.gateway.fleet import Fleet
from steelyard.gateway.metrics import Metrics
from steelyard.gateway.pods import Pod
from steelyard.gateway.settings import Settings
from steelyard.gateway.upstream import Backend
from steelyard.gateway.usage import Usage

log = logging.getLogger(__name__)

NO_POD_GRACE_SECONDS = 2.0  # how long requests wait for a role's first ready pod before they are refused
SHED_FACTOR = 10.0  # late work per replica, in TTFT objectives, beyond which shedding (if on) refuses newcomers
PATIENCE = 4.0  # times the estimated prefill, on top of the stall time-out, before an engine counts as stalled
CONVERTING_SHARE = 0.1  # share of its decode slots that a pod turned to prefill may still have running


class Router:
    """The state of one gateway process."""

    def __init__(self, settings: Settings, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.metrics = metrics
        self.windows = ArrivalWindows()
        self.exchanges: dict[int, Exchange] = {}
        self._loop = loop
        self._ratio = TokenRatio()
        self._prefill_time = PrefillTime(settings.prior)
        self._handoff = Smoothed(settings.handoff_seconds)
        self._prefixes = PrefixTable()
        self._alone: set[int] = set()  # exchanges whose prefill has its replica to itself: samples for the fit
        self._missing_since: dict[str, float] = {}  # role -> since when no pod of it is usable
        self._pumping = False
        self._again = False
        self._prefill = PrefillQueue(lambda tokens: self._prefill_time.seconds(tokens))
        self._decode: dict[str, DecodeQueue] = {}
        self.fleet = Fleet(loop, self.refresh)
        metrics.gauges = self._gauges
        self.apply(settings)

    def now(self) -> float:
        """Return seconds on the loop's clock."""
        return self._loop.time()

    def apply(self, settings: Settings) -> None:
        """Take over settings; what is under way goes on under the new ones."""
        if settings.prior != self._prefill_time.prior:
            self._prefill_time = PrefillTime(settings.prior)
        self.settings = settings
        queue = self._prefill
        queue.order, queue.ttft_budget = settings.order, settings.ttft_budget
        queue.slots = settings.slots_here if settings.aggregated else None
        for decode in self._decode.values():
            decode.slots, decode.ttft_objective = settings.slots_here, settings.objectives.ttft_seconds
        self.refresh()

    def set_pods(self, pods: tuple[Pod, ...]) -> None:
        """Take over what discovery found."""
        self.fleet.set_pods(pods)

    # --- requests in

    def missing_role(self) -> str | None:
        """Return a role without which no request can be served now, or None."""
        return next((role for role in self._needed() if not self.fleet.usable(role)), None)

    def admit(self, exchange: Exchange) -> None:
        """Take in a new request: estimate it, count it, queue it. Refuses (503, 429) by ending the exchange."""
        settings = self.settings
        exchange.wall_arrived = time.time()
        exchange.aggregated = settings.aggregated
        prompt = exchange.body.prompt
        tokens = float(exchange.body.prompt_token_ids or self._ratio.tokens(len(prompt)))
        tokens = min(tokens, float(settings.context_length))
        affine, held = None, 0
        if settings.affinity == "prefix":
            exchange.blocks = prompt_blocks(prompt)
            affine, held = self._prefixes.find(exchange.blocks)
        exchange.tokens = max(1.0, tokens * (1 - held / max(1, len(prompt))))
        self._count_arrival(exchange)
        self.exchanges[exchange.key] = exchange
        now = self.now()
        for role in self._needed():
            if now - self._missing_since.get(role, now) > NO_POD_GRACE_SECONDS:
                exchange.refuse(_no_pod(role))
                return
        objective = settings.objectives.ttft_seconds
        if settings.limits.shed_when_late and objective and self._prefill.late_seconds() > SHED_FACTOR * objective:
            exchange.refuse(ClientError(429, "too many requests are late already; try again later", retry_after=1))
            return
        self._prefill.push(Job(exchange.key, exchange.tokens, tokens, exchange.arrived, affine))
        self.pump()

    # --- what exchanges tell

    def prefilled(self, exchange: Exchange, usage: Usage | None) -> None:
        """Prefill is done; learn from it and queue for decode."""
        now = self.now()
        if usage is not None and usage.prompt_tokens:
            uncached = max(0, usage.prompt_tokens - usage.cached_tokens)
            exchange.prompt_counted = usage.prompt_tokens
            if exchange.body.prompt_token_ids is None:
                self._ratio.learn(len(exchange.body.prompt), usage.prompt_tokens)
            if exchange.key in self._alone:
                self._prefill_time.learn(uncached, now - exchange.sent_at)
            self._correct_arrival(exchange, uncached)
            context = float(usage.prompt_tokens)
        else:
            context = exchange.tokens
        if exchange.kv_transfer_params is None:
            self.metrics.handoffs_missing += 1
        self._alone.discard(exchange.key)
        self._prefill.drop(exchange.key, now)
        exchange.joined = now
        exchange.kv_group = exchange.backend.pod.kv_group if exchange.backend is not None else ""
        self._decode_queue(exchange.kv_group).push(Sequence(exchange.key, context, exchange.arrived))
        self.pump()

    def first_byte(self, exchange: Exchange) -> None:
        """The first token is on its way to the client."""
        now = self.now()
        if exchange.aggregated:
            if exchange.key in self._alone:
                self._prefill_time.learn(exchange.tokens, now - exchange.sent_at)
            self._prefill_over(exchange.key)
        elif exchange.kv_transfer_params is not None:
            self._handoff.learn(now - exchange.sent_at)

    def retry(self, exchange: Exchange, backend: Backend) -> None:
        """Send a failed leg elsewhere, at once if anywhere is ready."""
        leg, now = exchange.leg, self.now()
        self.metrics.retries["prefill" if leg is Leg.PREFILL or exchange.aggregated else "decode"] += 1
        exchange.joined = now
        self._alone.discard(exchange.key)
        if leg is Leg.PREFILL or exchange.aggregated:
            exchange.leg = Leg.WAIT_PREFILL
            name = self._prefill.retry(exchange.key, now)
        else:
            exchange.leg = Leg.WAIT_DECODE
            self.metrics.recomputed += exchange.kv_transfer_params is None
            name = self._retry_decode(exchange)
        if name is not None:
            self._carry_out(exchange, name)
        self.pump()

    def broken(self, backend: Backend, why: str) -> None:
        """Use a pod no more until it is well."""
        self.metrics.aside[backend.pod.role] += 1
        self.fleet.set_aside(backend, why)

    def ended(self, exchange: Exchange, outcome: Outcome) -> None:
        """A request is over: free what it held, learn, judge."""
        now = self.now()
        self.exchanges.pop(exchange.key, None)
        self._alone.discard(exchange.key)
        self._prefill.drop(exchange.key, now)
        queue = self._decode.get(exchange.kv_group)
        if queue is not None:
            queue.drop(exchange.key)
        self._judge(exchange, outcome, now)
        if self._converting():
            self.refresh()
        else:
            self.pump()

    # --- time and pods

    def sweep(self) -> None:
        """Look at every request's clock, and refuse those that wait for a role no pod plays."""
        now, settings = self.now(), self.settings
        for exchange in list(self.exchanges.values()):
            exchange.sweep(now, settings.request_timeout_seconds, settings.stall_timeout_seconds)
        for role in self._needed():
            since = self._missing_since.get(role)
            if since is not None and now - since > NO_POD_GRACE_SECONDS:
                for key in self._stuck_without(role):
                    self.exchanges[key].refuse(_no_pod(role))
        self.pump()

    def refresh(self) -> None:
        """Tell the queues which pods they may use now."""
        now = self.now()
        for role in self._needed():
            if self.fleet.usable(role):
                self._missing_since.pop(role, None)
            else:
                self._missing_since.setdefault(role, now)
        if self.settings.aggregated:
            self._prefill.set_ready(b.pod.identity for b in self.fleet.usable(labels.AGGREGATED))
        else:
            usable = self.fleet.usable(labels.PREFILL)
            settled = [b for b in usable if not self._still_decoding(b)]
            self._prefill.set_ready(b.pod.identity for b in settled or usable)
        groups: dict[str, list[str]] = {group: [] for group in self._decode}
        for backend in self.fleet.usable(labels.DECODE):
            groups.setdefault(backend.pod.kv_group, []).append(backend.pod.identity)
        for group, names in groups.items():
            queue = self._decode_queue(group)
            queue.set_ready(names)
            if queue.empty():
                del self._decode[group]
        self._move_stranded()
        self.pump()

    def pump(self) -> None:
        """Carry out everything that the queues decide now. What a dispatch triggers is decided in a further round."""
        if self._pumping:
            self._again = True
            return
        self._pumping = True
        try:
            self._again = True
            while self._again:
                self._again = False
                now = self.now()
                self._prefill.theta = theta_seconds(self._prefill_time.samples, self.settings.gateways)
                for dispatch in self._prefill.step(now):
                    self._carry_out(self.exchanges[dispatch.key], dispatch.replica)
                for queue in list(self._decode.values()):
                    for dispatch in queue.step(now):
                        self._carry_out(self.exchanges[dispatch.key], dispatch.replica)
        finally:
            self._pumping = False

    # --- inside

    def _needed(self) -> tuple[str, ...]:
        return (labels.AGGREGATED,) if self.settings.aggregated else (labels.DECODE, labels.PREFILL)

    def _stuck_without(self, role: str) -> list[int]:
        """Return who waits in vain: without decode pods everybody, without prefill pods those not prefilled yet."""
        decode = self._decode.values() if role == labels.DECODE else ()
        return [*self._prefill.waiting(), *(key for queue in decode for key in queue.waiting())]

    def _decode_queue(self, group: str) -> DecodeQueue:
        queue = self._decode.get(group)
        if queue is None:
            settings = self.settings
            queue = DecodeQueue(slots=settings.slots_here, ttft_objective=settings.objectives.ttft_seconds)
            self._decode[group] = queue
        return queue

    def _carry_out(self, exchange: Exchange, identity: str) -> None:
        backend = self.fleet.backends[identity]
        now = self.now()
        if exchange.leg is Leg.WAIT_DECODE:
            self.metrics.queue["decode"].observe(now - exchange.joined)
            exchange.send_answer(backend)
            return
        self.metrics.queue["prefill"].observe(now - exchange.joined)
        exchange.expected = PATIENCE * self._prefill_time.seconds(exchange.tokens)
        self._prefixes.note(exchange.blocks, identity)
        if self._prefill.alone(exchange.key):
            self._alone.add(exchange.key)
        else:
            self._alone -= self._prefill.beside(exchange.key)
        if not exchange.aggregated:
            exchange.send_prefill(backend)
            return
        exchange.send_answer(backend)
        if not exchange.body.stream:  # no first byte will tell when its prefill is over
            self._loop.call_later(self._prefill_time.seconds(exchange.tokens), self._prefill_over, exchange.key)

    def _prefill_over(self, key: int) -> None:
        self._alone.discard(key)
        self._prefill.prefilled(key, self.now())
        self.pump()

    def _retry_decode(self, exchange: Exchange) -> str | None:
        queue = self._decode_queue(exchange.kv_group)
        if queue.any_ready():
            return queue.retry(exchange.key)
        queue.drop(exchange.key)
        self._requeue_decode(exchange)
        return None

    def _requeue_decode(self, exchange: Exchange) -> None:
        """Queue for decode where some pod is ready: its own kv-group if possible, else another without its KV."""
        ready = [group for group, queue in self._decode.items() if queue.any_ready()]
        if ready and exchange.kv_group not in ready:
            self.metrics.recomputed += exchange.kv_transfer_params is not None
            exchange.kv_group, exchange.kv_transfer_params = ready[0], None
        queue = self._decode_queue(exchange.kv_group)
        queue.push(Sequence(exchange.key, exchange.tokens, exchange.arrived))

    def _move_stranded(self) -> None:
        """Move those who wait in a kv-group that has no decode pod any more, once another has one."""
        if not any(queue.any_ready() for queue in self._decode.values()):
            return
        for queue in [q for q in self._decode.values() if len(q) and not q.any_ready()]:
            for key in queue.waiting():
                queue.drop(key)
                self._requeue_decode(self.exchanges[key])

    def _still_decoding(self, backend: Backend) -> bool:
        """Whether a pod turned to prefill still runs too many sequences to take prefills without hurting them."""
        queue = self._decode.get(backend.pod.kv_group)
        running = queue.running_on(backend.pod.identity) if queue is not None else 0
        return running > CONVERTING_SHARE * self.settings.slots_here

    def _converting(self) -> bool:
        return any(queue.retiring() for queue in self._decode.values())

    def _count_arrival(self, exchange: Exchange) -> None:
        self.metrics.arrived += 1
        self.metrics.uncached_tokens += exchange.tokens
        budget = self.settings.ttft_budget
        if budget is not None and self._prefill_time.seconds(exchange.tokens) > budget:
            # No number of replicas lets it meet its objective: it must not ask for more of them.
            self.metrics.hopeless_tokens += exchange.tokens
            exchange.wall_arrived = 0.0
            return
        self.windows.add(exchange.wall_arrived, exchange.tokens)

    def _correct_arrival(self, exchange: Exchange, uncached: int) -> None:
        if exchange.wall_arrived:
            self.windows.add(exchange.wall_arrived, uncached - exchange.tokens)
        exchange.tokens = float(uncached)

    def _judge(self, exchange: Exchange, outcome: Outcome, now: float) -> None:
        metrics = self.metrics
        first, last = self._first_token_at(exchange), exchange.last_at or now
        tokens = exchange.answer_tokens
        ttft = None if first is None else first - exchange.arrived
        tpot = None if first is None else mean_seconds_per_token(min(first, last), last, tokens)
        ttft_met, tpot_met = judge(outcome, Timing(ttft, tpot, tokens), self.settings.judged_by)
        metrics.judged(outcome, ttft_met, tpot_met, length_class(exchange.prompt_tokens))
        if outcome is Outcome.COMPLETED:
            metrics.prompt_tokens += round(exchange.prompt_tokens)
        metrics.answer_tokens += exchange.answer_tokens * exchange.body.choices
        if outcome is not Outcome.COMPLETED:
            return
        metrics.e2e.observe(last - exchange.arrived)
        if ttft is not None:
            metrics.ttft.observe(ttft)
        if tpot is not None:
            metrics.tpot.observe(tpot)
        if exchange.first_at is not None and exchange.prefilled_at is not None:
            metrics.handoff.observe(exchange.first_at - exchange.prefilled_at)

    def _first_token_at(self, exchange: Exchange) -> float | None:
        """When the first token was there: seen in a stream, estimated for an answer in one piece."""
        if exchange.first_at is not None or exchange.last_at is None:
            return exchange.first_at
        estimate = self._prefill_time.seconds(exchange.tokens) if exchange.aggregated else self._handoff.value
        return min(exchange.sent_at + estimate, exchange.last_at)

    def _gauges(self) -> list[tuple[str, str, str, list[tuple[str, float]]]]:
        decode = self._decode.values()
        outstanding = [
            ("prefill", self._prefill.outstanding_tokens),
            ("decode", sum(q.outstanding_tokens for q in decode)),
        ]
        queued = [("prefill", self._prefill.queued_tokens), ("decode", sum(q.queued_tokens for q in decode))]
        waiting = [("prefill", float(len(self._prefill))), ("decode", float(sum(len(q) for q in decode)))]
        backends = self.fleet.backends.values()
        usable = [(role, float(len(self.fleet.usable(role)))) for role in self._needed()]
        return [
            ("outstanding_tokens", "Prompt tokens dispatched to engines of a role and not finished.", "role", outstanding),
            ("queued_tokens", "Prompt tokens that wait in the gateway for a role.", "role", queued),
            ("queued_requests", "Requests that wait in the gateway for a role.", "role", waiting),
            ("late_requests", "Requests that wait and can no longer meet their TTFT objective.", "role",
             [("prefill", float(self._prefill.late_count))]),
            ("engines", "Engines in use by role.", "role", usable),
            ("engine_calls", "Calls under way on an engine.", "engine", [(b.pod.name, float(b.calls)) for b in backends]),
            ("engine_dispatched", "Calls sent to an engine since it was found.", "engine",
             [(b.pod.name, float(b.dispatched)) for b in backends]),
        ]  # fmt: skip


def _no_pod(role: str) -> ClientError:
    return ClientError(503, f"no {role} engine is ready; try again later", code="no_engine", retry_after=2)
