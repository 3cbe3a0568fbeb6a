"""From what was measured to the figures of the page: per service and per change, and whether the goals are met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.operator.measure import CHANGES, RESYNC_SECONDS, AtSize, Work

GROWTH = 1.25  # a cost per change counts as constant if at the largest fleet it is at most so many times that at the smallest


@dataclass(frozen=True)
class Figure:
    """One line of the page: `of` reads it from a fleet size. `most` is a goal; with `constant` it must not grow either."""

    name: str
    words: str
    of: Callable[[AtSize], float]
    digits: int = 0
    most: float | None = None
    constant: bool = False


def net(work: Work, idle: Work, of: Callable[[Work], float]) -> float:
    """What a window took beyond what the operator takes in such a time when it is left alone."""
    return max(0.0, of(work) - of(idle) * work.seconds / idle.seconds)


def _per_change(kind: str, of: Callable[[Work], float], scale: float = 1.0) -> Callable[[AtSize], float]:
    return lambda at: scale * net(at.changes[kind], at.idle, of) / CHANGES


def _pieces(kind: str) -> Callable[[AtSize], float]:
    """CPU per change in pieces of the yardstick's work, which was done meanwhile."""
    cpu_ms = _per_change(kind, lambda w: w.cpu_seconds, 1e3)
    return lambda at: cpu_ms(at) / at.changes[kind].yardstick_ms


def _per_new(of: Callable[[Work], float], scale: float = 1.0) -> Callable[[AtSize], float]:
    return lambda at: scale * net(at.created, at.idle, of) / at.added


def _per_service(of: Callable[[Work], float], scale: float = 1.0) -> Callable[[AtSize], float]:
    return lambda at: scale * of(at.start) / at.services


def _idle_calls(at: AtSize) -> float:
    """A minute of rest: the lease, and the periodic look at every service, of which none fell into the measured window."""
    return 60 * (at.idle.calls / at.idle.seconds + at.services * at.unchanged["periodic"]["calls"] / RESYNC_SECONDS)


def _idle_cpu(at: AtSize) -> float:
    """The share of a core in such a minute, in percent."""
    looks = at.services * at.unchanged["periodic"]["cpu_ms"] / 1e3 / RESYNC_SECONDS
    return 100 * (at.idle.cpu_seconds / at.idle.seconds + looks)


def _changes(kind: str, words: str) -> tuple[Figure, ...]:
    return (
        Figure(f"{kind}_calls", f"{words}: API calls", _per_change(kind, lambda w: w.calls), 1, constant=True),
        Figure(f"{kind}_kib", f"{words}: KiB both ways", _per_change(kind, lambda w: w.bytes, 1 / 1024), constant=True),
        Figure(f"{kind}_cpu_ms", f"{words}: CPU (ms)", _per_change(kind, lambda w: w.cpu_seconds, 1e3), 1),
        Figure(f"{kind}_pieces", f"{words}: CPU (yardsticks)", _pieces(kind), 1, constant=True),
        Figure(
            f"{kind}_server_cpu_ms",
            f"{words}: CPU of the API server (ms)",
            _per_change(kind, lambda w: w.server_cpu_seconds, 1e3),
        ),
        Figure(f"{kind}_looks", f"{words}: reconciles", _per_change(kind, lambda w: w.reconciles), 1),
    )


def _unchanged(kind: str, words: str, most_ms: float | None = None) -> tuple[Figure, ...]:
    def of(name: str, scale: float = 1.0) -> Callable[[AtSize], float]:
        return lambda at: scale * at.unchanged[kind][name]

    return (
        Figure(f"{kind}_writes", f"{words}: writes", of("writes"), most=0),
        Figure(f"{kind}_reads", f"{words}: reads", of("calls"), constant=True),
        Figure(f"{kind}_kib", f"{words}: KiB both ways", of("bytes", 1 / 1024), constant=True),
        Figure(f"{kind}_cpu_ms", f"{words}: CPU, median (ms)", of("cpu_ms"), 1, most=most_ms),
        Figure(f"{kind}_cpu_ms_least", f"{words}: CPU, least (ms)", of("cpu_ms_least"), 1),
    )


FIGURES = (
    *_unchanged("event", "unchanged reconcile after an event", most_ms=5.0),
    *_unchanged("periodic", "the periodic look at everything"),
    *_changes("spec", "a changed objective"),
    *_changes("pod", "a pod lost or ready"),
    Figure("created_calls", "a new service: API calls", _per_new(lambda w: w.calls), constant=True),
    Figure("created_cpu_ms", "a new service: CPU (ms)", _per_new(lambda w: w.cpu_seconds, 1e3)),
    Figure("start_calls", "start-up: API calls per service", _per_service(lambda w: w.calls), 1),
    Figure("start_cpu_ms", "start-up: CPU per service (ms)", _per_service(lambda w: w.cpu_seconds, 1e3)),
    Figure("start_cpu_seconds", "start-up: CPU (s)", lambda at: at.start.cpu_seconds, 1),
    Figure("start_seconds", "start-up: until all is looked at (s)", lambda at: at.start.seconds, 1),
    Figure("start_writes", "start-up: writes", lambda at: at.start.writes, most=0),
    Figure("idle_calls", "at rest: API calls a minute", _idle_calls),
    Figure("idle_cpu_percent", "at rest: CPU (% of a core)", _idle_cpu, 2),
    Figure("rss_started_mib", "resident memory after the start (MiB)", lambda at: at.rss_started_mib),
    Figure("rss_after_mib", "resident memory in the end (MiB)", lambda at: at.rss_after_mib, most=200),
    Figure("rss_peak_mib", "resident memory at its peak (MiB)", lambda at: at.rss_peak_mib),
)


def verdict(figure: Figure, sizes: Sequence[AtSize]) -> bool | None:
    """Whether a figure meets its goal at every size and, where it shall be constant, does not grow; None without a goal."""
    values = [figure.of(at) for at in sizes]
    if figure.most is not None and any(value > figure.most for value in values):
        return False
    if figure.constant and values[-1] > GROWTH * values[0]:
        return False
    return True if figure.most is not None or figure.constant else None


def goal(figure: Figure) -> str:
    """The goal in words."""
    if figure.most is not None:
        return f"≤ {figure.most:g}"
    return "constant" if figure.constant else ""
