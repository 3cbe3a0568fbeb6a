"""From repeats to figures: the median of each, and how ours stands to the rival's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.gateway.measure import Repeat
from bench.gateway.scenarios import PACED_STREAMS

Value = float | None


@dataclass(frozen=True)
class Figure:
    """One line of the result. `of` reads it from a repeat, None where it has no meaning. `goal` bounds ours divided by
    the rival's: a least ratio where `more` is better, else a ratio to stay below."""

    name: str
    words: str
    unit: str
    of: Callable[[Repeat], Value]
    more: bool
    goal: float | None = None
    digits: int = 0
    added: bool = False  # what direct calls take is taken off


def _per_cpu(scenario: str, counted: str) -> Callable[[Repeat], Value]:
    def read(one: Repeat) -> Value:
        seen = one.loads[scenario]
        return seen[counted] / seen["cpu_seconds"] if seen["cpu_seconds"] else None

    return read


def _per_second(scenario: str, counted: str) -> Callable[[Repeat], Value]:
    return lambda one: one.loads[scenario][counted] / one.loads[scenario]["window_seconds"]


def _milliseconds(name: str) -> Callable[[Repeat], Value]:
    return lambda one: one.loads["arrivals"][name] / 1e3


def _paced_cpu(one: Repeat) -> Value:
    seen = one.loads["paced"]
    return 100 * seen["cpu_seconds"] / seen["window_seconds"] if seen["cpu_seconds"] else None


def _kib_per_stream(one: Repeat) -> Value:
    seen = one.loads["paced"]
    return (seen["rss_in_window"] - seen["rss_before"]) / PACED_STREAMS / 1024 if one.rss_start else None


def _per_frame(one: Repeat) -> Value:
    seen = one.loads["flat-out"]
    return seen["window_events"] / seen["window_frames"] if seen["window_frames"] else None


def _mib(size: int | None) -> Value:
    return size / 1024**2 if size is not None else None


FIGURES = (
    Figure("requests_per_cpu_second", "P/D requests per CPU-second", "", _per_cpu("requests", "window_completed"), True, 1.5),
    Figure("chunks_per_cpu_second", "streamed chunks per CPU-second", "", _per_cpu("flat-out", "window_events"), True, 1.0),
    Figure("paced_cpu_percent", "CPU at 500 streams × 30 chunks/s", "%", _paced_cpu, False, 1.0, 1),
    Figure("added_ttft_p50_ms", "added TTFT at 200 requests/s, median", "ms", _milliseconds("ttft_p50_us"), False, 1.0, 2,
           added=True),
    Figure("added_ttft_p99_ms", "added TTFT at 200 requests/s, p99", "ms", _milliseconds("ttft_p99_us"), False, None, 2,
           added=True),
    Figure("kib_per_stream", "memory per stream", "KiB", _kib_per_stream, False, 1.0, 1),
    Figure("rss_start_mib", "resident memory at start", "MiB", lambda one: _mib(one.rss_start), False, None, 1),
    Figure("rss_after_mib", "resident memory after everything", "MiB", lambda one: _mib(one.rss_after), False, None, 1),
    Figure("requests_per_second", "P/D requests per second", "", _per_second("requests", "window_completed"), True),
    Figure("chunks_per_second", "streamed chunks per second", "", _per_second("flat-out", "window_events"), True),
    Figure("chunks_per_frame", "chunks put together in one write, flat out", "", _per_frame, True, digits=2),
    Figure("paced_chunks_per_second", "chunks per second of the paced streams (15,000 asked)", "",
           _per_second("paced", "window_events"), True),
)  # fmt: skip


def medians(repeats: Sequence[Repeat]) -> dict[str, dict[str, Value]]:
    """By subject and figure, in the order in which the subjects were measured."""
    by_subject: dict[str, list[Repeat]] = {}
    for one in repeats:
        by_subject.setdefault(one.subject, []).append(one)
    found = {
        subject: {f.name: _median([f.of(one) for one in some]) for f in FIGURES} for subject, some in by_subject.items()
    }
    floor = found.get("direct")
    for figure in FIGURES:
        if floor is not None and figure.added:
            least = floor[figure.name] or 0.0
            for subject, values in found.items():
                value = values[figure.name]
                values[figure.name] = value - least if value is not None and subject != "direct" else None
    return found


def _median(values: Sequence[Value]) -> Value:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratio(figure: Figure, found: dict[str, dict[str, Value]]) -> Value:
    """Ours divided by the rival's; None where either is missing."""
    ours, theirs = (found.get(name, {}).get(figure.name) for name in ("steelyard", "vllm-router"))
    return ours / theirs if ours is not None and theirs else None


def reached(figure: Figure, share: Value) -> bool | None:
    """Whether a ratio meets the figure's goal; None without a goal or a ratio."""
    if figure.goal is None or share is None:
        return None
    return share >= figure.goal if figure.more else share < figure.goal
