"""The arrivals that are too fine for Prometheus: the gateways' exact windows of a quarter second, added up.

Each gateway serves its last four minutes at `:9090/demand`; windows are aligned to the wall clock. The sum ends where the
least advanced gateway ends, so that no window is counted without one of them. A gateway that does not answer makes the
whole unknown: what it took in is part of the demand.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future

import urllib3
from pydantic_core import from_json

from steelyard.api.labels import GATEWAY_METRICS_PORT
from steelyard.decide.scale.signals import WINDOW_SECONDS

TIMEOUT_SECONDS = 1.0
KEPT = 256  # gateways whose connection is kept
ANSWER_LIMIT = 64 * 1024
AHEAD = 64  # services whose gateways are asked before the one that is decided for
LATE_SECONDS = 30.0  # windows that end longer ago are from a gateway whose clock is wrong: not to be added up

Key = tuple[str, str]
Windows = tuple[float, tuple[float, ...]]
"""(end in unix seconds, tokens of each window, oldest first)."""


class Gateways:
    """Asks gateways for their windows; blocking, safe to share between threads."""

    def __init__(self) -> None:
        self._pool = urllib3.PoolManager(num_pools=KEPT, maxsize=1, retries=False)

    def ask(self, address: str) -> Windows | None:
        """The windows of the gateway at an address, or None when it gives none that make sense."""
        host = f"[{address}]" if ":" in address else address
        try:
            answer = self._pool.request(
                "GET",
                f"http://{host}:{GATEWAY_METRICS_PORT}/demand",
                timeout=TIMEOUT_SECONDS,
                redirect=False,
                preload_content=False,
            )
            try:
                data = answer.read(ANSWER_LIMIT)
            finally:
                answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError):
            return None
        return parse(data) if answer.status == 200 else None


def parse(data: bytes) -> Windows | None:
    """Read the body of `/demand`; None for anything but finite, non-negative numbers in windows of our length."""
    try:
        body = from_json(data)
        end, tokens = float(body["end"]), tuple([float(value) for value in body["uncachedTokens"]])
        right = body["windowSeconds"] == WINDOW_SECONDS and math.isfinite(end) and bool(tokens)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    if not right or not all(math.isfinite(value) and value >= 0 for value in tokens):
        return None
    return end, tokens


def added(given: Sequence[Windows | None], now: float) -> tuple[float, ...] | None:
    """Add the windows of all gateways of a service, or None where one of them is missing or out of time."""
    if not given or any(windows is None for windows in given):
        return None
    known = [windows for windows in given if windows is not None]
    end = min(windows[0] for windows in known)
    if any(abs(now - own_end) > LATE_SECONDS for own_end, _ in known):
        return None
    length = min(len(tokens) for _, tokens in known)
    total = [0.0] * length
    for own_end, tokens in known:
        ahead = round((own_end - end) / WINDOW_SECONDS)
        kept = tokens[: len(tokens) - ahead] if ahead else tokens
        shared = kept[-length:]
        for place, value in enumerate(shared, start=length - len(shared)):
            total[place] += value
    return tuple(total)


def ask_all(
    ask: Callable[[str], Windows | None], addresses: Iterable[tuple[Key, Sequence[str]]], now: float, pool: Executor
) -> Iterator[tuple[Key, tuple[float, ...] | None]]:
    """Ask the gateways of every service, by (namespace, name), and give the sums one after the other.

    Some services are asked ahead of the one that is given, and no more: the windows of a whole fleet are never there at once.
    """
    asked: deque[tuple[Key, list[Future[Windows | None]]]] = deque()
    for key, found in addresses:
        asked.append((key, [pool.submit(ask, address) for address in found]))
        if len(asked) > AHEAD:
            yield _next(asked, now)
    while asked:
        yield _next(asked, now)


def _next(asked: deque[tuple[Key, list[Future[Windows | None]]]], now: float) -> tuple[Key, tuple[float, ...] | None]:
    key, jobs = asked.popleft()
    return key, added([job.result() for job in jobs], now)
