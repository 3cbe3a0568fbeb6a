"""The results of a comparison: gathered part by part into a file, so that a long one goes on where it stopped; what they say."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final, NamedTuple

from steelyard_kernels.compare import caches, single, turned, weights
from steelyard_kernels.compare.subject import Subject

Say = Callable[[str], None]
Results = dict[str, Any]


CLAIM = 16  # windows that a statement in per cent needs
FP8 = ("FP8 weights", "FP8 weights, FP8 inputs")  # as the preset chooses its codes
TEXTS: Final = {"perplexity": "", "elsewhere": ", on another text"}
"""What perplexities are called in a row, and how statements tell them apart."""
POOLED: Final = ("both",)


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
        "rotations": lambda done: turned.measure(subject, quick, done),
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
    rows = {one["name"]: _pooled(one) for part in ("weights", "caches", "rotations") for one in results[part]}
    # A few windows, of both texts together, say which of two is better, not by how many per cent.
    exact = results["effort"]["windows"] >= CLAIM
    wanted: list[tuple[str, str, float | None]] = [
        ("INT3 GPTQ g64", "INT3 RTN g64", None),
        ("INT3 AWQ g64", "INT3 RTN g64", None),
        *((name, "bf16", 0.02) if exact else (name, "INT3 RTN g64", None) for name in FP8),
        ("KIVI-4", "all, 16 bits", 0.01) if exact else ("KIVI-4", "KIVI-2", None),
        ("W4A4 QuaRot", "W4A4 RTN", None),
        ("W4A4 SpinQuant", "W4A4 QuaRot", None),
    ]
    found = []
    for left, right, share in wanted:
        if left in rows and right in rows:
            compare = _less if share is None else _within(share)
            keys = [key for key in (TEXTS if exact else POOLED) if key in rows[left] and key in rows[right]]
            found += [compare(rows[left], rows[right], key, TEXTS.get(key, "")) for key in keys or ("perplexity",)]
    coded = {one["name"]: one["exact"] and one["share"] <= 0.85 for one in results["lossless"]}
    found += [Ordering(f"lossless, {name}: at least 15 % smaller and exact", holds) for name, holds in coded.items()]
    return found


def _pooled(row: Results) -> Results:
    """The row with its perplexity over both texts, where it was judged on both."""
    if "nll" not in row:
        return row
    return {**row, "both": math.exp(mean(row["nll"] + row["nll_elsewhere"]))}


def _less(left: Results, right: Results, key: str, where: str) -> Ordering:
    says = f"{left['name']} {left[key]:.3f} ≤ {right['name']} {right[key]:.3f}{where}"
    return Ordering(says, left[key] <= right[key])


def _within(share: float) -> Callable[[Results, Results, str, str], Ordering]:
    def compare(left: Results, right: Results, key: str, where: str) -> Ordering:
        change = left[key] / right[key] - 1
        says = f"{left['name']} within {share:.0%} of {right['name']}: {change:+.2%}{_spread(left, right, key)}{where}"
        return Ordering(says, abs(change) <= share)

    return compare


def _spread(left: Results, right: Results, key: str) -> str:
    """The standard error of a change, from the windows' differences, pair by pair."""
    name = {"perplexity": "nll", "elsewhere": "nll_elsewhere"}[key]
    if name not in left or name not in right or len(left[name]) < 2:
        return ""
    differences = [one - other for one, other in zip(left[name], right[name], strict=True)]
    return f" (± {stdev(differences) / len(differences) ** 0.5:.2%})"


def _write(keep: Path | None, results: Results) -> None:
    if keep is None:
        return
    unfinished = keep.with_name(f".{keep.name}")
    unfinished.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(unfinished, keep)
