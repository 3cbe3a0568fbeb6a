"""One request on its way: wait, prefill, wait, decode, done. Aggregated serving skips the middle two.

An exchange moves only when the router sends it somewhere, an engine answers, its client leaves, or a sweep finds it out
of time. It ends exactly once, with one outcome, and tells the router so. As long as no byte of an answer has reached the
client each leg is tried a second time elsewhere; after that an error becomes the stream's last event.
"""

import logging
from enum import Enum
from typing import Protocol

import msgspec

from steelyard.decide.queue.judge import Outcome
from steelyard.gateway.affinity import NOTHING
from steelyard.gateway.bodies import ClientBody, decode_body, prefill_body
from steelyard.gateway.errors import ClientError, error_event
from steelyard.gateway.events import BrokenStreamError, EventStream
from steelyard.gateway.request import Request
from steelyard.gateway.server import Client
from steelyard.gateway.upstream import Backend, Call
from steelyard.gateway.usage import Reply, Usage, read_reply
from steelyard.gateway.wire import EVENT_STREAM, JSON, KEEP_ALIVE_COMMENT, MAX_REPLY, full_response, request_bytes

log = logging.getLogger(__name__)

SIGN_OF_LIFE_SECONDS = 15.0  # a stream without content for so long sends a comment, so that proxies keep it open
_PASSING = frozenset((502, 503, 504))  # of decode: another engine may do better; a 500 is its answer


class Leg(Enum):
    """Where an exchange is."""

    WAIT_PREFILL = "waiting for prefill"
    PREFILL = "prefill"
    WAIT_DECODE = "waiting for decode"
    ANSWER = "answer"
    OVER = "over"


_PREFILL, _ANSWER, _OVER = Leg.PREFILL, Leg.ANSWER, Leg.OVER  # looking a member up costs more than comparing it


class Router(Protocol):
    """Who places exchanges. Each method is told once per event."""

    def now(self) -> float:
        """Return seconds on the loop's clock."""

    def prefilled(self, exchange: "Exchange", usage: Usage | None) -> None:
        """Prefill is done; decode comes next."""

    def first_byte(self, exchange: "Exchange") -> None:
        """The answer's first byte has arrived."""

    def retry(self, exchange: "Exchange", backend: Backend) -> None:
        """A leg failed on `backend` and is to be tried elsewhere."""

    def broken(self, backend: Backend, why: str) -> None:
        """A pod could not be reached, broke off or stalled."""

    def unclaimed(self, holder: Backend, kv_transfer_params: msgspec.Raw) -> None:
        """Nobody will fetch this KV from the pod that holds it."""

    def ended(self, exchange: "Exchange", outcome: Outcome) -> None:
        """The exchange is over."""


class Exchange:
    """One request. Times are seconds on the loop's clock; None until they happen."""

    __slots__ = ("_call", "_content_type", "_events", "_parts", "_progress", "_retried", "_retry_after", "_router",
        "_sign_at", "_size", "_status", "_stream_started", "aggregated", "arrived", "backend", "beginning", "body",
        "client", "counted", "counted_at", "expected", "first_at", "holder", "joined", "key", "kv_group", "kv_transfer_params",
        "last_at", "leg", "prefilled_at", "prompt_counted", "request", "request_id", "sent_at", "tokens", "usage")  # fmt: skip

    def __init__(
        self, router: Router, client: Client, request: Request, body: ClientBody, key: int, request_id: bytes
    ) -> None:
        self._router = router
        self.client = client
        self.request = request
        self.request_id = request_id
        self.body = body
        self.key = key
        self.leg = Leg.WAIT_PREFILL
        self.backend: Backend | None = None
        self.kv_group = ""
        self.kv_transfer_params: msgspec.Raw | None = None
        self.holder: Backend | None = None  # of the KV that they name
        self.aggregated = False
        self.tokens = 0.0  # of the prompt that must be computed: an estimate, then what prefill reported
        self.prompt_counted: int | None = None  # all tokens of the prompt, as prefill's usage says
        self.expected = 0.0  # seconds beyond the stall time-out that the prompt may take: a long one on a slow engine
        self.beginning = NOTHING  # of its prompt, as far as some replica holds it
        self.usage: Usage | None = None  # of the answer
        self.arrived = self.joined = router.now()  # joined: the queue it waits in, or last waited in
        self.counted_at: float | None = None  # unix time of its arrival window
        self.counted = 0.0  # tokens that the window counts for it
        self.sent_at = self.arrived  # when the current leg was dispatched
        self.prefilled_at: float | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None
        self._call: Call | None = None
        self._events: EventStream | None = None
        self._parts: list[bytes] = []
        self._size = self._status = 0
        self._content_type = b""
        self._retry_after: bytes | None = None
        self._retried: tuple[Leg, ...] = ()
        self._stream_started = False
        self._progress = self.arrived  # the last sign of the engine
        self._sign_at = self.arrived  # the last sign to the client, before the first token

    # --- what the router asks for

    def send_prefill(self, backend: Backend) -> None:
        """Begin the prefill leg on a pod."""
        self.leg = _PREFILL
        self._send(backend, prefill_body(self.body))

    def send_answer(self, backend: Backend) -> None:
        """Begin the leg that answers, on a pod."""
        self.leg = _ANSWER
        self._send(backend, decode_body(self.body, self.kv_transfer_params))

    def refuse(self, error: ClientError) -> None:
        """End without having been served."""
        self._end_with_error(error, Outcome.REFUSED)

    def abandon(self, error: ClientError) -> None:
        """End now, whatever is under way."""
        self._cancel()
        self._end_with_error(error, Outcome.FAILED)

    def sweep(self, now: float, request_timeout: float, stall_timeout: float) -> None:
        """Look at the clock: the whole request's time, an engine or a client that stalls, a sign of life."""
        if self.leg is _OVER:
            return
        if now - self.arrived > request_timeout:
            self.abandon(ClientError(504, f"the request took longer than {request_timeout:g} s", code="timeout"))
            return
        paused = self.client.paused_since
        if paused is not None:
            if now - paused > stall_timeout:
                self.client.abort()
            return
        # A whole answer gives no sign of progress until it is complete: only the request's own time bounds it.
        watched = self.leg is _PREFILL or (self.leg is _ANSWER and self.body.stream)
        patience = stall_timeout + (self.expected if self.first_at is None else 0.0)
        if watched and now - max(self._progress, self.sent_at) > patience and self.backend is not None:
            self._cancel()
            self.answer_failed(f"engine {self.backend.pod.name} sent nothing for {patience:g} s", unreachable=False)
        elif self.body.stream and self.first_at is None and now - self._sign_at > SIGN_OF_LIFE_SECONDS:
            self._sign_at = now
            self._start_stream(EVENT_STREAM)
            self.client.send(KEEP_ALIVE_COMMENT)

    def client_gone(self) -> None:
        """The client has left: stop the engine's work at once."""
        if self.leg is not _OVER:
            self._cancel()
            self._finish(Outcome.CANCELLED)

    def client_paused(self, paused: bool) -> None:
        """Let the engine wait for a slow client."""
        if self._call is not None and self.leg is _ANSWER:
            self._call.pause(paused)

    # --- what the engine answers

    def answer_head(self, status: int, content_type: bytes, retry_after: bytes | None) -> None:
        """Decide by the head whether this is a stream to pipe or an answer to collect."""
        self._status, self._content_type, self._retry_after = status, content_type, retry_after
        self._progress = self._router.now()
        if self.leg is _ANSWER and self.body.stream and status == 200 and content_type.startswith(EVENT_STREAM):
            self._events = EventStream(
                wants_usage=self.body.wants_usage, wants_running_usage=self.body.wants_running_usage
            )

    def answer_data(self, data: bytes) -> None:
        """Pipe or collect."""
        self._progress = self._router.now()
        if self._events is None:
            self._size += len(data)
            self._parts.append(data)
            if self._size > MAX_REPLY:
                self._cancel()
                self.answer_failed(f"an answer of more than {MAX_REPLY} bytes", unreachable=False)
            return
        try:
            out = self._events.feed(data)
        except BrokenStreamError as error:
            self._cancel()
            self.answer_failed(str(error), unreachable=False)
            return
        if not out:
            return
        self.last_at = self._progress
        if self.first_at is None:
            self.first_at = self._progress
            self.body = self.body.without_content()  # no second try from here on: a long stream need not hold it
            self._router.first_byte(self)
        self._start_stream(self._content_type)
        self.client.send(out)

    def answer_end(self) -> None:
        """The engine's answer is complete."""
        self._call = None
        if self._events is not None:
            self._stream_ended(self._events)
            return
        body = b"".join(self._parts)
        self._parts.clear()
        if self._status >= 500 and (self.leg is _PREFILL or self._status in _PASSING) and self._may_retry():
            if (
                self._status == 503 and self.backend is not None
            ):  # it drains or starts: ask its health before its next call
                self._router.broken(self.backend, "answered 503")
            self._again(f"answered {self._status}")
        elif 400 <= self._status < 600:
            self._pass_on_error(body)
        elif self._status != 200:
            self._not_an_answer(f"answered {self._status}")
        elif self.leg is _PREFILL:
            self._prefill_ended(read_reply(body))
        else:
            self._whole_answer(body)

    def answer_failed(self, why: str, *, unreachable: bool) -> None:
        """There is no (complete) answer."""
        self._call = None
        backend = self.backend
        if self.leg is _OVER or backend is None:
            return
        self._router.broken(backend, why)
        if self._may_retry():
            if self.leg is _ANSWER and not unreachable:
                self.forget_kv()  # the pod may have fetched and released it: another must compute it anew
            self._again(why)
            return
        log.warning("request failed", extra={"fields": {**self._facts(), "why": why}})
        self._end_with_error(
            ClientError(502, "the engine failed while serving the request", code="engine_failed"), Outcome.FAILED
        )

    def forget_kv(self) -> None:
        """Go on without what prefill left: nobody will fetch it now."""
        if self.kv_transfer_params is not None and self.holder is not None:
            self._router.unclaimed(self.holder, self.kv_transfer_params)
        self.kv_transfer_params = None

    # --- inside

    def _send(self, backend: Backend, body: bytes) -> None:
        self.backend = backend
        self.sent_at = self._router.now()
        self._events, self._size = None, 0
        self._parts.clear()
        backend.dispatched += 1
        request = request_bytes(self.request.path, backend.host, body, self.request_id, self.request.trace)
        self._call = backend.call(request, self)
        if self.client.paused_since is not None and self.leg is _ANSWER:
            self._call.pause(True)

    def _may_retry(self) -> bool:
        return self.leg not in self._retried and self.first_at is None

    def _again(self, why: str) -> None:
        backend = self.backend
        if backend is None:
            return
        self._retried = (*self._retried, self.leg)
        log.info("leg repeated", extra={"fields": {**self._facts(), "why": why}})
        self._router.retry(self, backend)

    def _prefill_ended(self, reply: Reply) -> None:
        self.prefilled_at = self._router.now()
        has_handoff = bytes(reply.kv_transfer_params)[:1] == b"{"
        if has_handoff:
            self.kv_transfer_params, self.holder = reply.kv_transfer_params, self.backend
        if not has_handoff:
            log.warning("prefill answered without hand-off data; decode serves the request whole",
                        extra={"fields": self._facts()})  # fmt: skip
        self.leg = Leg.WAIT_DECODE
        self._router.prefilled(self, reply.usage)

    def _whole_answer(self, body: bytes) -> None:
        reply = read_reply(body)
        if not reply.complete:
            self._not_an_answer("answered 200 without an answer")
            return
        self.last_at = self._router.now()
        self.usage = reply.usage
        if self._stream_started:  # a stream was promised by a sign of life, and the engine answered in one piece
            self._end_with_error(ClientError(502, "the engine did not stream its answer"), Outcome.FAILED)
            return
        self._finish(Outcome.COMPLETED)
        self._reply(200, body)

    def _not_an_answer(self, why: str) -> None:
        """End: the engine is well and said something, but nothing that can be passed on as an answer or an error."""
        log.warning("request failed", extra={"fields": {**self._facts(), "why": why}})
        self._end_with_error(ClientError(502, "the engine gave no answer", code="engine_failed"), Outcome.FAILED)

    def _stream_ended(self, events: EventStream) -> None:
        self.usage = events.usage
        if not events.done and not events.failed:
            self.answer_failed("the stream ended without [DONE]", unreachable=False)
            return
        self._finish(Outcome.FAILED if events.failed else Outcome.COMPLETED)
        self._start_stream(self._content_type)
        self.client.end_stream(close=events.failed)

    def _pass_on_error(self, body: bytes) -> None:
        outcome = Outcome.INVALID if 400 <= self._status < 500 and self._status != 429 else Outcome.FAILED
        if self._stream_started:
            self._end_with_error(ClientError(self._status, "the engine refused the request"), outcome)
            return
        self._finish(outcome)
        self._reply(self._status, body)

    def _reply(self, status: int, body: bytes) -> None:
        extra: tuple[tuple[bytes, bytes], ...] = ((b"x-request-id", self.request_id),)
        if self._retry_after is not None:
            extra = (*extra, (b"retry-after", self._retry_after))
        keep = self.client.keep_alive()
        self.client.respond(
            full_response(status, body, content_type=self._content_type or JSON, keep_alive=keep, extra=extra)
        )

    def _start_stream(self, content_type: bytes) -> None:
        if not self._stream_started:
            self._stream_started = True
            self.client.start_stream(content_type, ((b"x-request-id", self.request_id),))

    def _end_with_error(self, error: ClientError, outcome: Outcome) -> None:
        if self.leg is _OVER:
            return
        self._finish(outcome)
        if self._stream_started:
            self.client.send(error_event(error))
            self.client.end_stream(close=True)
        else:
            self.client.fail(error, ((b"x-request-id", self.request_id),))

    def _finish(self, outcome: Outcome) -> None:
        if self.leg is _OVER:
            return
        if self._events is not None and self.usage is None:
            self.usage = self._events.usage
        self.leg = _OVER
        if outcome is not Outcome.COMPLETED and self.first_at is None:
            self.forget_kv()
        self._router.ended(self, outcome)

    def _cancel(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    @property
    def prompt_tokens(self) -> float:
        """Tokens of the prompt: as prefill counted them, else as the answer's usage did, else the estimate."""
        if self.prompt_counted is not None:
            return self.prompt_counted
        counted = self.usage.prompt_tokens if self.usage is not None else None
        return counted or self.tokens

    @property
    def answer_tokens(self) -> int:
        """Tokens of one answer: from usage (shared by all choices), else one per event of the stream."""
        tokens = self.usage.completion_tokens if self.usage is not None else None
        if tokens is None:
            tokens = self._events.events if self._events is not None else 0
        return -(-tokens // self.body.choices)

    def _facts(self) -> dict[str, object]:
        pod = self.backend.pod.name if self.backend is not None else None
        return {"request": self.request_id.decode(), "leg": self.leg.value, "pod": pod}
