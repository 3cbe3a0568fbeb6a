"""Drives the work queue on the event loop: takes keys that are due, runs them in threads, ends them in the queue.

The work itself blocks (it talks to the API server), so it runs in a bounded pool of threads; the queue is touched on
the loop only. While `may_work` says no (another replica leads), asks are remembered and nothing is run.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from steelyard.observe.client import ApiError
from steelyard.run.queue import WorkQueue

log = logging.getLogger(__name__)

Key = tuple[str, str]  # namespace, name
STANDBY_POLL_SECONDS = 0.5
ENDING_SECONDS = 20.0


class Worker:
    """Runs `work(key, failures)`, which gives the seconds until the next look or None where the object is gone."""

    def __init__(
        self,
        work: Callable[[Key, int], float | None],
        may_work: Callable[[], bool],
        limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = work
        self._may_work = may_work
        self._limit = limit
        self._clock = clock
        self._queue: WorkQueue[Key] = WorkQueue()
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="reconcile")
        self._running: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()

    def ask(self, key: Key, after: float = 0.0, urgent: bool = False) -> None:
        """Want a run; called on the loop."""
        self._queue.ask(key, self._clock(), after, urgent)
        self._wake.set()

    def forget(self, key: Key) -> None:
        """Drop a key whose object is gone."""
        self._queue.forget(key)

    def oldest_wait(self) -> float:
        """Seconds that the longest-overdue key has waited; 0 on a standby, whose keys wait on purpose."""
        return self._queue.oldest_wait(self._clock()) if self._may_work() else 0.0

    def __len__(self) -> int:
        return len(self._queue)

    async def serve(self) -> None:
        """Run keys until cancelled; runs in progress are then given time to end."""
        try:
            while True:
                self._wake.clear()
                working = self._may_work()
                if working:
                    self._start_due()
                await self._sleep(working)
        finally:
            if self._running:
                await asyncio.wait(self._running, timeout=ENDING_SECONDS)
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_due(self) -> None:
        while len(self._running) < self._limit:
            key = self._queue.take(self._clock())
            if key is None:
                return
            task = asyncio.get_running_loop().create_task(self._run(key), name=f"reconcile {'/'.join(key)}")
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()

    async def _sleep(self, working: bool) -> None:
        due = self._queue.next_due() if working and len(self._running) < self._limit else None
        timeout = max(0.0, due - self._clock()) if due is not None else None
        if not working:
            timeout = STANDBY_POLL_SECONDS
        elif timeout is None or timeout > 1:
            timeout = 1.0  # leadership may be lost meanwhile
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wake.wait()

    async def _run(self, key: Key) -> None:
        loop = asyncio.get_running_loop()
        try:
            again = await loop.run_in_executor(self._threads, self._work, key, self._queue.failures(key))
        except Exception as failure:
            wait = self._queue.failed(key, self._clock(), random.random())
            expected = isinstance(failure, ApiError)  # the cluster's answer says it all; ours needs its traceback
            message = "reconcile failed: %s; next try in %.1f s"
            log.warning(message, failure, wait, extra={"service": "/".join(key)}, exc_info=not expected)
        else:
            self._queue.succeeded(key, self._clock(), again)
