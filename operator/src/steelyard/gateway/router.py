"""Places exchanges: the queues of `decide` joined with real pods, clocks and clients.

Everything runs on one loop, so an event is handled whole before the next: it changes a queue, and `pump` then carries out
what the queues decide. What is learnt and counted on the way is the ledger's business.
"""

import asyncio
import logging
import time

from msgspec import Raw

from steelyard.api import labels
from steelyard.decide.queue.admission import DecodeQueue, Sequence
from steelyard.decide.queue.dispatch import Job, PrefillQueue
from steelyard.decide.queue.judge import Outcome
from steelyard.gateway.affinity import Prefixes, index
from steelyard.gateway.errors import ClientError
from steelyard.gateway.exchange import Exchange, Leg
from steelyard.gateway.fleet import Fleet
from steelyard.gateway.holding import Holding
from steelyard.gateway.ledger import Ledger
from steelyard.gateway.metrics import Metrics
from steelyard.gateway.pods import Pod
from steelyard.gateway.release import give_up
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
        self.now = time.monotonic  # the loop's clock too, which counts whole milliseconds only
        self.ledger = Ledger(settings, metrics)
        self.exchanges: dict[int, Exchange] = {}
        self.holding = Holding()
        self._loop = loop
        self._affinity = "none"
        self._prefixes: Prefixes = index(self._affinity)
        self._missing_since: dict[str, float] = {}  # role -> since when no pod of it is usable
        self._pumping = False
        self._again = False
        self._prefill = PrefillQueue(self.ledger.prefill_seconds)
        self._decode: dict[str, DecodeQueue] = {}
        self.fleet = Fleet(loop, self.refresh)
        metrics.gauges = self._gauges
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Take over settings; what is under way goes on under the new ones."""
        self.settings = settings
        self._aggregated = settings.aggregated
        if settings.affinity != self._affinity:
            self._affinity, self._prefixes = settings.affinity, index(settings.affinity)
        objective = settings.objectives.ttft_seconds
        shed = settings.limits.shed_when_late and objective is not None
        self._shed_seconds = SHED_FACTOR * objective if shed and objective is not None else None
        self.ledger.apply(settings)
        queue = self._prefill
        queue.order, queue.ttft_budget, queue.theta = settings.order, settings.ttft_budget, self.ledger.theta
        queue.slots = settings.slots_here if self._aggregated else None
        for decode in self._decode.values():
            decode.slots, decode.ttft_objective = settings.slots_here, objective
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
        body, now = exchange.body, exchange.arrived
        exchange.aggregated = self._aggregated
        exchange.tokens = tokens = self.ledger.prompt_tokens(body)
        exchange.beginning = beginning = self._prefixes.find(body.prompt, self.fleet.backends, body.model)
        if beginning.held:
            exchange.tokens = max(1.0, tokens * (1 - beginning.held / len(body.prompt)))
        exchange.expected = PATIENCE * self.ledger.arrived(exchange, time.time())
        self.exchanges[exchange.key] = exchange
        self.holding.waiting += exchange.request.size
        if self._missing_since:
            for role in self._needed():
                if now - self._missing_since.get(role, now) > NO_POD_GRACE_SECONDS:
                    exchange.refuse(_no_pod(role))
                    return
        if self._shed_seconds is not None and self._prefill.late_seconds() > self._shed_seconds:
            exchange.refuse(ClientError(429, "too many requests are late already; try again later", retry_after=1))
            return
        job = Job(exchange.key, exchange.tokens, tokens, now, beginning.replica)
        if self._decode_keeps_up():
            name = self._prefill.offer(job, now)
            if name is not None:
                self._send_prefill(exchange, name, now)
                return
        else:
            self._prefill.push(job)
        self.pump()

    # --- what exchanges tell

    def prefilled(self, exchange: Exchange, usage: Usage | None) -> None:
        """Prefill is done; decode comes next."""
        now = self.now()
        key = exchange.key
        context = self.ledger.prefilled(exchange, usage, alone=self._prefill.alone(key), now=now)
        self._prefill.theta = self.ledger.theta
        self._prefill.drop(key, now)
        exchange.joined = now
        exchange.kv_group = exchange.backend.pod.kv_group if exchange.backend is not None else ""
        name = self._decode_queue(exchange.kv_group).offer(Sequence(key, context, exchange.arrived))
        if name is not None:
            self._send_decode(exchange, name, now)
        elif self._aggregated:  # the topology changed meanwhile
            self._move_stranded()
        self.pump()

    def first_byte(self, exchange: Exchange) -> None:
        """The first token is on its way to the client, and the request's body is not held any more."""
        self.holding.waiting -= exchange.request.size
        exchange.request.size = 0
        alone = exchange.aggregated and self._prefill.alone(exchange.key)
        self.ledger.first_byte(exchange, alone=alone, now=self.now())
        if exchange.aggregated:
            self._prefill.theta = self.ledger.theta
            self._prefill_over(exchange.key)

    def retry(self, exchange: Exchange, backend: Backend) -> None:
        """Send a failed leg elsewhere, at once if anywhere is ready."""
        leg, now = exchange.leg, self.now()
        self.metrics.retries["prefill" if leg is Leg.PREFILL or exchange.aggregated else "decode"] += 1
        exchange.joined = now
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

    def unclaimed(self, holder: Backend, kv_transfer_params: Raw) -> None:
        """Have a pod free KV that nobody will fetch, long before its lease ends."""
        self.metrics.kv_given_up += 1
        give_up(holder, kv_transfer_params)

    def ended(self, exchange: Exchange, outcome: Outcome) -> None:
        """A request is over: free what it held, learn, judge."""
        now = self.now()
        self.exchanges.pop(exchange.key, None)
        self.holding.waiting -= exchange.request.size
        self._prefill.drop(exchange.key, now)
        queue = self._decode.get(exchange.kv_group)
        if queue is not None:
            queue.drop(exchange.key)
        self.ledger.ended(exchange, outcome, now)
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
        if self._aggregated:
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
        if not self._anybody_waits():
            return
        self._pumping = True
        try:
            self._again = True
            while self._again:
                self._again = False
                now = self.now()
                for queue in list(self._decode.values()):
                    for dispatch in queue.step(now):
                        self._carry_out(self.exchanges[dispatch.key], dispatch.replica)
                # A prefill pod keeps finished KV for a lease only: what decode cannot take soon waits unprefilled.
                if self._decode_keeps_up():
                    for dispatch in self._prefill.step(now):
                        self._carry_out(self.exchanges[dispatch.key], dispatch.replica)
        finally:
            self._pumping = False

    # --- inside

    def _anybody_waits(self) -> bool:
        if self._prefill.in_line:
            return True
        for queue in self._decode.values():  # noqa: SIM110 (at every event: a generator would double the cost)
            if queue.in_line:
                return True
        return False

    def _decode_keeps_up(self) -> bool:
        for queue in self._decode.values():  # noqa: SIM110 (as above)
            if queue.backed_up():
                return False
        return True

    def _needed(self) -> tuple[str, ...]:
        return (labels.AGGREGATED,) if self._aggregated else (labels.DECODE, labels.PREFILL)

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
        if exchange.leg is Leg.WAIT_DECODE:
            self._send_decode(exchange, identity, self.now())
        else:
            self._send_prefill(exchange, identity, self.now())

    def _send_decode(self, exchange: Exchange, identity: str, now: float) -> None:
        self.metrics.decode_queue.observe(now - exchange.joined)
        exchange.send_answer(self.fleet.backends[identity])

    def _send_prefill(self, exchange: Exchange, identity: str, now: float) -> None:
        backend = self.fleet.backends[identity]
        exchange.aggregated = self._aggregated  # what it is now, not what it was when the request came
        self.metrics.prefill_queue.observe(now - exchange.joined)
        self._prefixes.sent(exchange.beginning, identity)
        if not exchange.aggregated:
            exchange.send_prefill(backend)
            return
        exchange.send_answer(backend)
        if not exchange.body.stream:  # no first byte will tell when its prefill is over
            self._loop.call_later(self.ledger.prefill_seconds(exchange.tokens), self._prefill_over, exchange.key)

    def _prefill_over(self, key: int) -> None:
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
        """Queue for decode where some pod is ready: its own kv-group if possible, else another without its KV, else a pod
        that serves it whole, where the topology has become aggregated."""
        ready = [group for group, queue in self._decode.items() if queue.any_ready()]
        if not ready and self._aggregated:
            self.metrics.recomputed += exchange.kv_transfer_params is not None
            exchange.forget_kv()
            exchange.leg = Leg.WAIT_PREFILL
            self._prefill.push(Job(exchange.key, exchange.tokens, exchange.prompt_tokens, exchange.arrived, None))
            return
        if ready and exchange.kv_group not in ready:
            self.metrics.recomputed += exchange.kv_transfer_params is not None
            exchange.forget_kv()
            exchange.kv_group = ready[0]
        queue = self._decode_queue(exchange.kv_group)
        queue.push(Sequence(exchange.key, exchange.tokens, exchange.arrived))

    def _move_stranded(self) -> None:
        """Move those who wait in a kv-group that has no decode pod any more, once another pod can serve them."""
        if not self._aggregated and not any(queue.any_ready() for queue in self._decode.values()):
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
        for queue in self._decode.values():  # noqa: SIM110 (as above)
            if queue.retiring():
                return True
        return False

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
            ("engine_outstanding_tokens", "Prompt tokens sent to an engine and not computed yet.", "engine",
             [(b.pod.name, self._prefill.outstanding_on(b.pod.identity)) for b in backends]),
            ("engine_calls", "Calls under way on an engine.", "engine", [(b.pod.name, float(b.calls)) for b in backends]),
            ("engine_dispatched", "Calls sent to an engine since it was found.", "engine",
             [(b.pod.name, float(b.dispatched)) for b in backends]),
        ]  # fmt: skip


def _no_pod(role: str) -> ClientError:
    return ClientError(503, f"no {role} engine is ready; try again later", code="no_engine", retry_after=2)
