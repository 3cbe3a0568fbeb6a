"""vLLM's scheduler with our order of the waiting line: `--scheduler-cls steelyard_kernels.vllm_plugin.scheduler.LateLastScheduler`.

It reads `--additional-config '{"steelyard": {"ttft_seconds": 2.0, "prefill_tokens_per_second": 8000, "prefill_seconds": 0.02}}'`:
the objective for the first token less what the way to the client takes, and what a prefill costs. Without `ttft_seconds` the order
is shortest first. Only the waiting line differs: batching, preemption and the cache are vLLM's own. A request with computed tokens
(it was preempted, or its KV came from elsewhere) goes before all others, as in vLLM.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue

from steelyard_kernels.vllm_plugin.order import Entry, Line, Objective

SETTINGS = ("ttft_seconds", "prefill_tokens_per_second", "prefill_seconds")
DEFAULT_RATE = 8000.0  # tokens a second; orders requests, and with an objective must be stated


class LateLastScheduler(AsyncScheduler):
    """vLLM's, with its waiting queue replaced."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = (self.vllm_config.additional_config or {}).get("steelyard", {})
        self.waiting = LateLastQueue(objective(settings), self._under_way)

    def _under_way(self) -> int:
        """Prompt tokens of running requests that are still to be prefilled."""
        return sum(max(0, one.num_prompt_tokens - one.num_computed_tokens) for one in self.running)


def objective(settings: dict[str, Any]) -> Objective:
    """From the settings; ValueError names one that cannot be used."""
    unknown = set(settings) - set(SETTINGS)
    if unknown:
        raise ValueError(f"steelyard has no setting {sorted(unknown)[0]!r}; there are {', '.join(SETTINGS)}")
    for name, value in settings.items():
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or value < 0
            or (value == 0 and name != SETTINGS[2])
        ):
            raise ValueError(f"steelyard.{name} is {value!r}; it must be a positive number")
    if "ttft_seconds" in settings and "prefill_tokens_per_second" not in settings:
        raise ValueError(
            "steelyard.ttft_seconds needs steelyard.prefill_tokens_per_second: who is late depends on both"
        )
    rate = settings.get("prefill_tokens_per_second", DEFAULT_RATE)
    return Objective(settings.get("ttft_seconds"), 1 / rate, settings.get("prefill_seconds", 0.0))


class LateLastQueue(RequestQueue):
    """vLLM's queue interface over a `Line`; `under_way` gives the tokens that are being prefilled."""

    def __init__(self, aim: Objective, under_way: Callable[[], int], clock: Callable[[], float] = time.time) -> None:
        self._line, self._under_way, self._clock = Line(aim), under_way, clock
        self._resumed: deque[Any] = deque()
        self._requests: dict[str, Any] = {}

    def add_request(self, request: Any) -> None:
        """In line."""
        tokens = request.num_prompt_tokens - request.num_computed_tokens
        self._line.add(Entry(request.request_id, tokens, request.arrival_time))
        self._requests[request.request_id] = request

    def peek_request(self) -> Any:
        """Who is next; IndexError when nobody waits."""
        if self._resumed:
            return self._resumed[0]
        entry = self._line.peek(self._clock(), self._ahead())
        if entry is None:
            raise IndexError("peek from an empty queue")
        return self._requests[entry.key]

    def pop_request(self) -> Any:
        """Serve who is next; IndexError when nobody waits."""
        if self._resumed:
            return self._resumed.popleft()
        if not self._requests:
            raise IndexError("pop from an empty queue")
        return self._requests.pop(self._line.take(self._clock(), self._ahead()).key)

    def prepend_request(self, request: Any) -> None:
        """Before all others if it has computed tokens; else, vLLM having looked at it and passed on, back in line."""
        if request.num_computed_tokens or request.num_preemptions:
            self._resumed.appendleft(request)
        else:
            self.add_request(request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Each, the last of them first as in vLLM's own queue."""
        for request in requests:
            self.prepend_request(request)

    def remove_request(self, request: Any) -> None:
        """Its client left."""
        self.remove_requests([request])

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Their clients left."""
        gone = {request.request_id for request in requests}
        for key in gone:
            if self._requests.pop(key, None) is not None:
                self._line.remove(key)
        self._resumed = deque(request for request in self._resumed if request.request_id not in gone)

    def __bool__(self) -> bool:
        return bool(self._resumed or self._requests)

    def __len__(self) -> int:
        return len(self._resumed) + len(self._requests)

    def __iter__(self) -> Iterator[Any]:
        yield from [*self._resumed, *(self._requests[entry.key] for entry in self._line.entries())]

    def _ahead(self) -> float:
        return self._under_way() * self._line.objective.per_token
