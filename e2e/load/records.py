"""What became of each request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from e2e.load.errors import LoadError


class Outcome(StrEnum):
    """Each request ends in exactly one."""

    COMPLETED = "completed"  # 200, and a stream with its end
    FAILED = "failed"  # `kind` says how
    REFUSED = "refused"  # 4xx or 503: a clean answer that there will be none
    TIMED_OUT = "timed_out"  # bytes came, the end did not within the bound
    HUNG = "hung"  # no byte for the bound of silence
    CANCELLED = "cancelled"  # by us: `planned`, `stopped`, or `unsent` when the run was stopped before


class Kind(StrEnum):
    """How a request failed, or why it was cancelled; refused ones and server errors have `status_<code>`."""

    UNREACHABLE = "unreachable"  # no connection
    NO_ANSWER = "no_answer"  # closed before a byte of the answer
    CUT = "cut"  # the answer broke off
    ERROR_EVENT = "error_event"  # the stream said that it failed
    NOT_A_STREAM = "not_a_stream"  # 200, but no (whole) stream of events
    BROKEN_HTTP = "broken_http"
    DUPLICATED = "duplicated"  # more than one answer: two ends, two ids, more tokens than asked, bytes after the end
    PLANNED = "planned"
    STOPPED = "stopped"
    UNSENT = "unsent"


def status_kind(status: int) -> str:
    """The kind of an answer that is not 200."""
    return f"status_{status}"


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are seconds since the run's start; None: it did not come to that."""

    index: int
    outcome: Outcome
    kind: str | None  # None when completed
    scheduled: float
    sent: float | None  # when we began to connect; minus `scheduled` it is our own lag
    connected: float | None
    first_byte: float | None
    first_token: float | None
    last_token: float | None
    ended: float | None
    status: int | None
    prompt_tokens: int  # asked
    output_tokens: int  # asked
    prompt_tokens_read: int | None  # by the server's usage
    tokens: int  # of the answer: by the server's usage, or else counted by events
    events: int  # that carried text
    longest_gap: float | None  # between two events with text
    slow: bool  # we read slowly: its times are not the server's
    answer_id: str | None
    digest: str | None  # of the answer's text, as far as it came: equal for equal texts
    detail: str | None  # what the server or the socket said of a failure

    @property
    def ttft(self) -> float | None:
        """Seconds from the scheduled moment to the first token: what a client waits."""
        return None if self.first_token is None else self.first_token - self.scheduled

    @property
    def ttft_from_sent(self) -> float | None:
        """Seconds from sending to the first token: without our own lag."""
        return None if self.first_token is None or self.sent is None else self.first_token - self.sent

    @property
    def tpot(self) -> float | None:
        """Mean seconds per token after the first; None with one token."""
        if self.first_token is None or self.last_token is None or self.tokens < 2:
            return None
        return (self.last_token - self.first_token) / (self.tokens - 1)

    @property
    def seconds(self) -> float | None:
        """Seconds from the scheduled moment to the end."""
        return None if self.ended is None else self.ended - self.scheduled


def account(records: Iterable[Record], requests: int) -> tuple[Record, ...]:
    """The records in order, proved to be one for each of `requests` requests; raises LoadError otherwise."""
    ordered = tuple(sorted(records, key=lambda record: record.index))
    if [record.index for record in ordered] != list(range(requests)):
        counts = Counter(record.index for record in ordered)
        missing = [index for index in range(requests) if not counts[index]]
        twice = [index for index, count in counts.items() if count > 1]
        raise LoadError(f"The client lost count: no record of requests {missing[:10]}, more than one of {twice[:10]}.")
    return ordered
