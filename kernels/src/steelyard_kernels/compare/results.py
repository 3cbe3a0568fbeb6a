"""The results of a comparison: gathered part by part into a file, so that a long one goes on where it stopped; what they say."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from steelyard_kernels.compare import caches, single, turned, weights
from steelyard_kernels.compare.subject import Subject

Say = Callable[[str], None]
Results = dict[str, Any]


CLAIM = 16  # windows that a statement in per cent needs


class Ordering(NamedTuple):
    """A statement about results, and whether they bear it out."""

    says: str
    holds: bool


def gather(subject: Subject, quick: bool, keep: Path | None, say: Say) -> Results:
    """All parts in turn. With `keep`, a file of an earlier run of the same effort supplies the parts that it has."""
    effort = subject.effort._asdict()
    results: Results = {"effort": effort}
    if keep is not None and keep.is_file():
        earlier = json.loads(keep.read_text())
        results = earlier if earlier.get("effort") == effort else results
    parts: dict[str, Callable[[Container[str]], Iterable[dict[str, Any]]]] = {
        "attention": lambda done: single.attention(),
        "one_layer": lambda done: single.one_layer(subject),
        "lossless": lambda done: single.lossless(subject),
        "outliers": lambda done: turned.outliers(subject),
        "weights": lambda done: weights.measure(subject, quick, done),
        "rotations": lambda done: turned.measure(subject, done),
        "caches": lambda done: caches.measure(subject, quick),
    }
    complete = results.setdefault("complete", [])
    for name, measure in parts.items():
        if name in complete:
            continue
        say(f"measuring {name}")
        rows = results.setdefault(name, [])
        for row in measure({row["name"] for row in rows}):
            rows.append(row)
            _write(keep, results)
            say(", ".join(f"{key} {value:.4g}" if isinstance(value, float) else str(value) for key, value in row.items()
                          if isinstance(value, float | str)))  # fmt: skip
        complete.append(name)
        _write(keep, results)
    results["orderings"] = [one._asdict() for one in orderings(results)]
    _write(keep, results)
    return results


def orderings(results: Results) -> list[Ordering]:
    """What is expected of any run; those whose parts a quick run leaves out are not among its orderings."""
    of = {one["name"]: one["perplexity"] for part in ("weights", "caches", "rotations") for one in results[part]}
    # A few windows say which of two is better, not by how many per cent.
    exact = results["effort"]["windows"] >= CLAIM
    wanted: list[tuple[str, str, float | None]] = [
        ("INT3 GPTQ g64", "INT3 RTN g64", None),
        ("INT3 AWQ g64", "INT3 RTN g64", None),
        ("FP8 weights", "bf16", 0.02) if exact else ("FP8 weights", "INT3 RTN g64", None),
        ("KIVI-4", "all, 16 bits", 0.01) if exact else ("KIVI-4", "KIVI-2", None),
        ("W4A4 QuaRot", "W4A4 RTN", None),
        ("W4A4 SpinQuant", "W4A4 QuaRot", None),
    ]
    measured = [one for one in wanted if one[0] in of and one[1] in of]
    found = [_within(left, right, share, of) if share else _less(left, right, of) for left, right, share in measured]
    coded = {one["name"]: one["exact"] and one["share"] <= 0.85 for one in results["lossless"]}
    found += [Ordering(f"lossless, {name}: at least 15 % smaller and exact", holds) for name, holds in coded.items()]
    return found


def _less(left: str, right: str, of: dict[str, float]) -> Ordering:
    return Ordering(f"{left} {of[left]:.3f} ≤ {right} {of[right]:.3f}", of[left] <= of[right])


def _within(left: str, right: str, share: float, of: dict[str, float]) -> Ordering:
    change = of[left] / of[right] - 1
    return Ordering(f"{left} within {share:.0%} of {right}: {change:+.2%}", abs(change) <= share)


def _write(keep: Path | None, results: Results) -> None:
    if keep is None:
        return
    unfinished = keep.with_name(f".{keep.name}")
    unfinished.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(unfinished, keep)
