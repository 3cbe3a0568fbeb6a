"""One request's way: from its scheduled moment to its one record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from e2e.load.answers import MAX_DETAIL, Answer, AnswerError
from e2e.load.connections import Connection
from e2e.load.records import Kind, Outcome, Record, status_kind
from e2e.load.spec import Bounds, Planned

LEAVE_WAITING_SECONDS = 0.1  # after sending, for clients that leave before the first token
_MAX_ERROR_BODY = 4096


class Exchange:
    """A request under way. It ends once: the first ending wins, and `ended` is called with its record."""

    __slots__ = (
        "_answer",
        "_bounds",
        "_clock",
        "_ended",
        "_error_body",
        "_fact",
        "_timer",
        "connected",
        "connection",
        "first_byte",
        "heard",
        "over",
        "planned",
        "sent",
        "slow",
        "status",
    )

    def __init__(
        self,
        planned: Planned,
        bounds: Bounds,
        slow_bytes_per_second: float,
        clock: Callable[[], float],
        ended: Callable[[Exchange, Record], None],
    ) -> None:
        self.planned = planned
        self.slow = slow_bytes_per_second if planned.slow else None
        self._bounds = bounds
        self._clock = clock
        self._ended = ended
        self._answer = Answer(planned.arrival.output_tokens)
        self._error_body = b""
        self._timer: asyncio.TimerHandle | None = None
        self.connection: Connection | None = None
        self.over = False
        self.status: int | None = None
        self.sent: float | None = None
        self.connected: float | None = None
        self.first_byte: float | None = None
        self.heard = 0.0  # when the server last gave a sign of life

    def begin(self) -> None:
        """Note that the client turns to this request now: it connects or takes a connection."""
        self.sent = self.heard = self._clock()

    def send(self, connection: Connection, request: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Send the request on an open connection."""
        self.connection = connection
        self.connected = self.heard = self._clock()
        connection.start(self, request)
        if self.planned.leave_after == 0:
            self._timer = loop.call_later(LEAVE_WAITING_SECONDS, self.cancel, Kind.PLANNED)

    def check(self, now: float) -> None:
        """Give up where a bound is passed. Silence while we do not read is our own."""
        if self.over or self.sent is None:
            return
        if self.connection is not None and self.connection.paused:
            self.heard = now
        if now - self.heard >= self._bounds.silence:
            self._finish(Outcome.HUNG, None, f"no byte for {self._bounds.silence:g} s")
        elif now - self.sent >= self._bounds.request:
            self._finish(Outcome.TIMED_OUT, None, f"no end within {self._bounds.request:g} s")

    def cancel(self, kind: Kind) -> None:
        """Leave: the server sees the connection break."""
        self._finish(Outcome.CANCELLED, kind, None)

    def answer_head(self, status: int) -> None:
        """The head has arrived."""
        self.status = status
        self.heard = self.first_byte = self._clock()

    def answer_data(self, data: bytes) -> None:
        """A part of the body has arrived."""
        now = self.heard = self._clock()
        if self.status != 200:
            self._error_body = (self._error_body + data)[:_MAX_ERROR_BODY]
            return
        try:
            self._answer.feed(data, now)
        except AnswerError as error:
            self._finish(Outcome.FAILED, error.kind, str(error))
            return
        leave = self.planned.leave_after
        if leave is not None and self._answer.events >= max(leave, 1) and not self._answer.done:
            self.cancel(Kind.PLANNED)

    def answer_end(self) -> None:
        """The body is complete."""
        status = self.status or 0
        if status != 200:
            clean = 400 <= status < 500 or status == 503
            detail = self._error_body.decode(errors="replace")[:MAX_DETAIL]
            self._finish(Outcome.REFUSED if clean else Outcome.FAILED, status_kind(status), detail)
            return
        try:
            self._answer.end()
        except AnswerError as error:
            self._finish(Outcome.FAILED, error.kind, str(error))
            return
        self._finish(Outcome.COMPLETED, None, None)

    def answer_failed(self, kind: Kind, detail: str) -> None:
        """There is no (complete) answer."""
        self._finish(Outcome.FAILED, kind, detail)

    def _finish(self, outcome: Outcome, kind: str | None, detail: str | None) -> None:
        if self.over:
            return
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        answer, arrival = self._answer, self.planned.arrival
        record = Record(
            index=self.planned.index,
            outcome=outcome,
            kind=None if kind is None else str(kind),
            scheduled=arrival.at,
            sent=self.sent,
            connected=self.connected,
            first_byte=self.first_byte,
            first_token=answer.first_token,
            last_token=answer.last_token,
            ended=self._clock(),
            status=self.status,
            prompt_tokens=arrival.prompt_tokens,
            output_tokens=arrival.output_tokens,
            prompt_tokens_read=answer.prompt_tokens,
            tokens=answer.tokens,
            events=answer.events,
            longest_gap=answer.longest_gap,
            slow=self.slow is not None,
            answer_id=answer.id,
            digest=answer.digest,
            detail=detail,
        )
        self._ended(self, record)
