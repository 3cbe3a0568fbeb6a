"""Independent runs in several processes at once. Figures do not depend on how many: every run has its own seed."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
_calls: Sequence[Callable[[], Any]] = ()  # what the children inherit: closures cannot be sent to them

JOBS = "STEELYARD_EVIDENCE_JOBS"


def jobs() -> int:
    """How many at once: what the environment says, else as many as this process may use cores. Raises ValueError."""
    said = os.environ.get(JOBS)
    if said is None:
        return len(os.sched_getaffinity(0))
    if not said.isdigit() or int(said) < 1:
        raise ValueError(f"{JOBS} is {said!r}; it must be a number of processes, at least 1")
    return int(said)


def each(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What each call returns, in order. What one raises is raised here."""
    global _calls
    most = min(jobs(), len(calls))
    if most <= 1:
        return [call() for call in calls]
    _calls = calls
    try:
        with multiprocessing.get_context("fork").Pool(most) as pool:
            found: list[T] = pool.map(_call, range(len(calls)), chunksize=1)
            pool.close()
            pool.join()  # so that their CPU counts as ours
        return found
    finally:
        _calls = ()


def _call(number: int) -> Any:
    return _calls[number]()
