"""The worker on a real event loop: bounded, one run a key, standby waits, failures come again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from steelyard.run.worker import Key, Worker


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until it holds; the test's own time limit ends what never does, however slow the machine is."""
    while not holds():
        await asyncio.sleep(0.01)


def drive(worker: Worker, steps: Callable[[], object]) -> None:
    async def both() -> None:
        serving = asyncio.create_task(worker.serve())
        try:
            await steps()  # type: ignore[misc]
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(both())


def test_it_runs_what_is_asked_with_bounded_parallelism() -> None:
    lock = threading.Lock()
    running: list[Key] = []
    most, done = 0, []

    def work(key: Key, failures: int) -> None:
        nonlocal most
        with lock:
            assert key not in running
            running.append(key)
            most = max(most, len(running))
        time.sleep(0.02)
        with lock:
            running.remove(key)
            done.append(key)

    worker = Worker(work, may_work=lambda: True, limit=2)

    async def steps() -> None:
        for index in range(8):
            worker.ask(("ns", str(index)))
            worker.ask(("ns", str(index)))
        await eventually(lambda: len(done) >= 8 and not running)

    drive(worker, steps)
    assert sorted(set(done)) == [("ns", str(index)) for index in range(8)]
    assert most <= 2


@pytest.mark.parametrize("turns", range(5))
def test_it_ends_when_cancelled_just_as_it_wakes(turns: int) -> None:
    """A cancellation that meets a wake must not be lost: the process would not end (asyncio.wait_for of Python 3.11 loses it)."""

    async def race() -> bool:
        worker = Worker(lambda key, failures: None, may_work=lambda: True, limit=1)
        serving = asyncio.create_task(worker.serve())
        await asyncio.sleep(0.02)
        worker.ask(("ns", "name"))
        for _ in range(turns):
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.wait({serving}, timeout=5)
        ended = serving.done()
        serving.cancel()
        return ended

    assert asyncio.run(race())


def test_a_failure_is_tried_again_and_counted() -> None:
    seen: list[int] = []

    def work(key: Key, failures: int) -> None:
        seen.append(failures)
        if failures < 1:
            raise RuntimeError("first time")

    worker = Worker(work, may_work=lambda: True, limit=1)

    async def steps() -> None:
        worker.ask(("ns", "a"))
        await eventually(lambda: len(seen) == 2)

    drive(worker, steps)
    assert seen == [0, 1]


def test_a_standby_remembers_and_works_once_it_leads() -> None:
    leading = False
    done: list[Key] = []
    worker = Worker(lambda key, failures: done.append(key), may_work=lambda: leading, limit=1)

    async def steps() -> None:
        nonlocal leading
        worker.ask(("ns", "a"))
        await asyncio.sleep(0.1)
        assert done == []
        assert worker.oldest_wait() == 0, "a standby's keys wait on purpose"
        leading = True
        await eventually(lambda: done == [("ns", "a")])

    drive(worker, steps)


def test_a_run_in_progress_is_given_time_to_end() -> None:
    ended = threading.Event()
    started = threading.Event()

    def work(key: Key, failures: int) -> None:
        started.set()
        time.sleep(0.2)
        ended.set()

    worker = Worker(work, may_work=lambda: True, limit=1)

    async def steps() -> None:
        worker.ask(("ns", "a"))
        await eventually(started.is_set)

    drive(worker, steps)
    assert ended.is_set()
