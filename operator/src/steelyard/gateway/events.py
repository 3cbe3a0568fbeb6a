"""A server-sent-events body on its way through: bytes in, whole events out, usage read and withheld.

Only whole events are passed on, so that whatever the gateway itself must say (an error, a sign of life) never lands
inside one. In the usual case a read ends with an event and goes through untouched, with two searches in C for a usage
object; only an event that holds one is parsed. A client that did not ask for usage sees none, and one that did sees it in
the final event alone, unless it asked for running totals; for our own account the last value counts, never the sum.
"""

import re

import msgspec

from steelyard.gateway.usage import Usage, read_usage

MAX_EVENT = 8 * 1024 * 1024

_END, _END_CRLF = b"\n\n", b"\r\n\r\n"
_MARK, _MARK_SPACED = b'"usage":{', b'"usage": {'
_ERROR, _ERROR_SPACED = b'data: {"error":', b'data: {"error" :'
_DATA, _NEXT_DATA = b"data:", b"\ndata:"
_FINAL = re.compile(rb"^data: ?\[DONE\]\r?$", re.MULTILINE)  # whatever comments follow it

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class BrokenStreamError(ValueError):
    """An engine's stream cannot be an event stream."""


class EventStream:
    """Filter of one stream. `events` counts those passed on that carry data, `usage` is the last one seen."""

    __slots__ = ("_rest", "_running_usage", "_wants_usage", "done", "events", "failed", "usage")

    def __init__(self, *, wants_usage: bool, wants_running_usage: bool) -> None:
        self._wants_usage = wants_usage
        self._running_usage = wants_running_usage
        self._rest = b""
        self.events = 0
        self.done = False  # the final [DONE] has passed
        self.failed = False  # the engine reported an error inside the stream
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """Take what arrived and return what goes to the client now. Raises BrokenStreamError for an endless event."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if not data.endswith(_END):
            data = self._hold_back(data)
        if not data:
            return b""
        if _MARK in data or _MARK_SPACED in data:
            data = b"".join([self._with_usage(event) for event in _split(data)])
        if _ERROR in data or _ERROR_SPACED in data:
            self.failed = True
        self.events += data.startswith(_DATA) + data.count(_NEXT_DATA)
        if b"[DONE]" in data and (found := len(_FINAL.findall(data))):
            self.done = True
            self.events -= found
        return data

    def rest(self) -> bytes:
        """Return what is left of an event that never ended."""
        return self._rest

    def _hold_back(self, data: bytes) -> bytes:
        if data.endswith(_END_CRLF):
            return data
        cut = data.rfind(_END) + len(_END)
        if cut < len(_END):
            cut = data.rfind(_END_CRLF) + len(_END_CRLF)
            if cut < len(_END_CRLF):
                cut = 0
        self._rest = data[cut:]
        if len(self._rest) > MAX_EVENT:
            raise BrokenStreamError(f"an event of more than {MAX_EVENT} bytes")
        return data[:cut]

    def _with_usage(self, event: bytes) -> bytes:
        """Note an event's usage, and return the event as the client may see it (possibly nothing)."""
        if (_MARK not in event and _MARK_SPACED not in event) or not event.startswith(_DATA):
            return event
        try:
            fields = _decode_fields(event[len(_DATA) :].strip())
            usage = fields.get("usage")
            if usage is None or bytes(usage) == b"null":
                return event
            self.usage = read_usage(usage) or self.usage
        except (msgspec.MsgspecError, RecursionError):
            return event
        final = bytes(fields.get("choices", b"")).replace(b" ", b"") == b"[]"
        if (self._wants_usage and final) or self._running_usage:
            return event
        if final:
            return b""
        del fields["usage"]
        return b"data: " + _encode(fields) + _END


def _split(data: bytes) -> list[bytes]:
    end = _END_CRLF if _END not in data else _END
    return [part + end for part in data.split(end)[:-1]]
