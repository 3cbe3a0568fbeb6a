"""Giving up KV that nobody will fetch: its client left, or decode failed, before the state had moved.

The prefill pod would hold it until its lease ends. Gateways may not reach the port that states move on; the pod takes the
release on its API port, from whoever knows the unguessable id. Nothing depends on the answer: an engine that knows no such
path answers 404, and a release that is lost leaves the lease.
"""

import logging
import re

import msgspec

from steelyard.gateway.upstream import Backend

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
_SAFE_ID = re.compile(r"[A-Za-z0-9._~-]{1,256}")  # it goes into a request's target


class _Params(msgspec.Struct, frozen=True):
    remote_request_id: str | None = None


_decode = msgspec.json.Decoder(_Params).decode


def give_up(holder: Backend, kv_transfer_params: msgspec.Raw) -> None:
    """Ask the pod that holds a state to free it now. What names no state that could be asked for is left to its lease."""
    try:
        handle = _decode(kv_transfer_params).remote_request_id or ""
    except (msgspec.MsgspecError, RecursionError):
        return
    if not _SAFE_ID.fullmatch(handle):
        return
    request = b"DELETE /kv/%b HTTP/1.1\r\nhost: %b\r\n\r\n" % (handle.encode(), holder.host)
    call = holder.call(request, _Unheard(holder))
    holder.loop.call_later(TIMEOUT_SECONDS, call.cancel)


class _Unheard:
    """A caller that does nothing about the answer."""

    def __init__(self, holder: Backend) -> None:
        self._holder = holder

    def answer_head(self, status: int, content_type: bytes, retry_after: bytes | None) -> None:
        """204, or whatever else: the lease does the rest."""

    def answer_data(self, data: bytes) -> None:
        """There is none that matters."""

    def answer_end(self) -> None:
        """The pod knows."""

    def answer_failed(self, why: str, *, unreachable: bool) -> None:
        """The lease does the rest."""
        log.info("KV left to its lease", extra={"fields": {"pod": self._holder.pod.name, "why": why}})
