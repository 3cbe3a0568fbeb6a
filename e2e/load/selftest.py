"""What this client can do on this machine: the highest rate of arrivals that it sends in time.

The server is a stub in a process of its own that costs next to nothing, so what lags is the client (or a machine too small for
both, which is then the answer too). The rate is doubled until the client does not hold it, then the gap is halved a few times.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cache import REPOSITORY
from e2e.load.arrivals import Lengths, Shape, synthetic
from e2e.load.errors import LoadError
from e2e.load.health import MAX_CPU
from e2e.load.running import Result, run_load
from e2e.load.spec import Spec, Target

PROMPT_TOKENS = 200
GAP_SECONDS = 0.02  # between the tokens of an answer: 50 tokens/s, as a reader likes it
FIRST, MOST = 50.0, 20_000.0  # requests per second; a client beyond the latter has other limits


@dataclass(frozen=True)
class Course:
    """What is asked of the client in each trial."""

    seconds: float = 5.0  # of schedule
    tokens: int = 32  # of each answer
    processes: int = 1
    bound: float = 0.010  # seconds of lag at the 99th percentile
    most: float = MOST  # requests per second that are tried


@dataclass(frozen=True)
class Trial:
    """One run at one rate: requests per second, seconds of lag at the 99th percentile, share of a core."""

    rate: float
    send_lag_p99: float
    loop_lag_p99: float
    cpu: float  # of the busiest process
    broken: int
    held: bool


def judge(rate: float, result: Result, bound: float) -> Trial:
    """Whether a run held its rate: nothing broke, requests and reads were in time, and no process was near a whole core."""
    verdict = result.verdict
    held = max(verdict.send_lag_p99, verdict.loop_lag_p99) <= bound and verdict.cpu <= MAX_CPU and not result.broken
    return Trial(rate, verdict.send_lag_p99, verdict.loop_lag_p99, verdict.cpu, len(result.broken), held)


def search(trial: Callable[[float], Trial], first: float, most: float, halvings: int = 3) -> list[Trial]:
    """Try rates from `first` to `most`; every rate that does not hold is tried twice, since one busy moment is no limit.

    Law: if holding a rate means holding all lower ones, the highest that held is within a factor 2^(1/2^halvings) of the limit.
    """
    trials: list[Trial] = []

    def holds(rate: float) -> bool:
        for _ in range(2):
            trials.append(trial(rate))
            if trials[-1].held:
                return True
        return False

    low, high = 0.0, first
    while high <= most and holds(high):
        low, high = high, high * 2
    if low and high <= most:
        for _ in range(halvings):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if holds(middle) else (low, middle)
    return trials


def limit(trials: list[Trial]) -> Trial | None:
    """The highest rate that held."""
    return max((one for one in trials if one.held), key=lambda one: one.rate, default=None)


def run(course: Course, told: Callable[[Trial], None]) -> list[Trial]:
    """Measure; `told` hears of each trial as it ends."""
    with _stub(course.tokens) as url:

        def trial(rate: float) -> Trial:
            schedule = synthetic(Shape(rate=rate), Lengths(PROMPT_TOKENS, course.tokens), course.seconds, seed=1)
            result = run_load(Spec(Target(url, "stub"), schedule, processes=course.processes))
            told(found := judge(rate, result, course.bound))
            return found

        return search(trial, min(FIRST, course.most), course.most)


@contextmanager
def _stub(tokens: int) -> Iterator[str]:
    command = [sys.executable, "-m", "e2e.load.stub", str(tokens), str(GAP_SECONDS)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise LoadError("The stub server did not start; its error is above.")
        yield f"http://127.0.0.1:{port}"
        process.stdin.close()


def machine() -> str:
    """This machine in words, for a figure that is shown to others."""
    names = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    return f"{cores} cores of {name}, Python {platform.python_version()}, load average {load:.1f} before"


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
