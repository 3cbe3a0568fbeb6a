"""Who sends requests to replicas: one interface, and the routers that bind a request to a replica as it arrives.

These are the rivals of `gateway.py`: round robin, and least loaded (fewest outstanding prompt tokens; for decode the least
KV). Requests for which no replica is ready wait here, first come, first served.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from steelyard.sim.replica import Replica
from steelyard.sim.requests import Request


class Depth(NamedTuple):
    """What waits in a router, as its metrics tell."""

    prefill: int = 0
    prefill_tokens: float = 0.0
    late: int = 0
    decode: int = 0


class Router(Protocol):
    """Events in; sends to replicas follow, at the latest in `pump`."""

    def arrive(self, request: Request, now: float) -> None:
        """A new request."""

    def prefilled(self, request: Request, now: float) -> None:
        """Its prompt is computed; decode comes next."""

    def answered(self, request: Request, now: float) -> None:
        """It decodes where it was prefilled, and has its first token."""

    def ended(self, request: Request, now: float) -> None:
        """It is over, however it ended."""

    def lost(self, request: Request, now: float, *, decoding: bool) -> None:
        """Its replica died before its client had a token; it has started over."""

    def use(self, prefill: Sequence[Replica], decode: Sequence[Replica], now: float) -> None:
        """These replicas are ready now; of aggregated ones, all are in both."""

    def pump(self, now: float) -> None:
        """Send what can be sent."""

    def depth(self) -> Depth:
        """What waits."""

    def waiting(self) -> list[int]:
        """Keys of the requests that wait here."""


class Direct:
    """Binds on arrival."""

    def __init__(self, *, round_robin: bool, aggregated: bool) -> None:
        self._round_robin, self._aggregated = round_robin, aggregated
        self._prefill: Sequence[Replica] = ()
        self._decode: Sequence[Replica] = ()
        self._turns = [0, 0]
        self._for_prefill: deque[Request] = deque()
        self._for_decode: deque[Request] = deque()

    def arrive(self, request: Request, now: float) -> None:
        """Send it at once if any replica is ready."""
        self._for_prefill.append(request)
        self.pump(now)

    def prefilled(self, request: Request, now: float) -> None:
        """Send it at once if any replica is ready."""
        self._for_decode.append(request)

    def answered(self, request: Request, now: float) -> None:
        """Of no interest here."""

    def ended(self, request: Request, now: float) -> None:
        """Whoever failed while waiting waits no more."""
        for line in (self._for_prefill, self._for_decode):
            if request in line:
                line.remove(request)

    def lost(self, request: Request, now: float, *, decoding: bool) -> None:
        """Send it from the start."""
        self._for_prefill.append(request)

    def use(self, prefill: Sequence[Replica], decode: Sequence[Replica], now: float) -> None:
        """Use these from now on."""
        self._prefill, self._decode = prefill, decode
        self.pump(now)

    def pump(self, now: float) -> None:
        """Send everybody, if any replica is ready."""
        while self._for_prefill and self._prefill:
            request = self._for_prefill.popleft()
            self.choose(0, self._prefill).prefill(request, now, local=self._aggregated)
        while self._for_decode and self._decode:
            request = self._for_decode.popleft()
            replica = self.choose(1, self._decode)
            if request.held_by is not None:
                replica.decode(request, now)
            else:  # its KV was lost while it waited
                replica.prefill(request, now, local=True)
                request.decoding = True

    def depth(self) -> Depth:
        """Only those wait here for whom no replica is ready."""
        tokens = sum(request.tokens for request in self._for_prefill)
        return Depth(len(self._for_prefill), tokens, 0, len(self._for_decode))

    def waiting(self) -> list[int]:
        """Keys of those for whom no replica is ready."""
        return [request.key for request in (*self._for_prefill, *self._for_decode)]

    def choose(self, stage: int, replicas: Sequence[Replica]) -> Replica:
        """Choose a replica for prefill (stage 0) or decode (1)."""
        self._turns[stage] += 1
        if self._round_robin:
            return replicas[(self._turns[stage] - 1) % len(replicas)]
        if stage == 0:
            return min(replicas, key=lambda r: (r.outstanding, r.sequences()))
        return min(replicas, key=lambda r: (r.kv + sum(q.context for q in r.incoming), r.outstanding))
