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
MARGIN = 0.10  # what learned rotations may lose to fixed ones in a quick run, whose windows another CPU's last bits could turn
FP8 = ("FP8 weights", "FP8 weights, FP8 inputs")  # as the preset chooses its codes
TEXTS: Final = {"perplexity": "", "elsewhere": ", on another text"}
"""What perplexities are called in a row, and how statements tell them apart."""
POOLED: Final = ("both",)


class Ordering(NamedTuple):
    """A statement about results, and whether they bear it out."""

    says: str
    holds: bool


class Wanted(NamedTuple):
    """`left` is to be no more than `right`, give or take `margin`; or with `share` to be within that of it, on either side."""

    left: str
    right: str
    share: float | None = None
    margin: float = 0.0


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
    """What is expected of any run; those whose parts a quick run leaves out are not among its orderings, and its SpinQuant has a
    margin."""
    rows = {one["name"]: _pooled(one) for part in ("weights", "caches", "rotations") for one in results[part]}
    # A few windows, of both texts together, say which of two is better, not by how many per cent.
    exact = results["effort"]["windows"] >= CLAIM
    wanted = [
        Wanted("INT3 GPTQ g64", "INT3 RTN g64"),
        Wanted("INT3 AWQ g64", "INT3 RTN g64"),
        *(Wanted(name, "bf16", share=0.02) if exact else Wanted(name, "INT3 RTN g64") for name in FP8),
        Wanted("KIVI-4", "all, 16 bits", share=0.01) if exact else Wanted("KIVI-4", "KIVI-2"),
        # At W4A4 one change at a time: first the rotation, then GPTQ, then the learning.
        Wanted("W4A4 QuaRot, rounded weights", "W4A4 RTN"),
        Wanted("W4A4 SpinQuant, rounded weights", "W4A4 QuaRot, rounded weights"),
        Wanted("W4A4 GPTQ", "W4A4 RTN"),
        Wanted("W4A4 QuaRot", "W4A4 GPTQ"),
        *([Wanted("W4A4 QuaRot", "W4A4 QuaRot, rounded weights")] if exact else []),
        Wanted("W4A4 SpinQuant", "W4A4 QuaRot", margin=0.0 if exact else MARGIN),
    ]
    found = []
    for one in wanted:
        if one.left in rows and one.right in rows:
            left, right = rows[one.left], rows[one.right]
            keys = [key for key in (TEXTS if exact else POOLED) if key in left and key in right]
            found += [_judged(one, left, right, key) for key in keys or ("perplexity",)]
    coded = {one["name"]: one["exact"] and one["share"] <= 0.85 for one in results["lossless"]}
    found += [Ordering(f"lossless, {name}: at least 15 % smaller and exact", holds) for name, holds in coded.items()]
    return found


def _pooled(row: Results) -> Results:
    """The row with its perplexity over both texts, where it was judged on both."""
    if "nll" not in row:
        return row
    return {**row, "both": math.exp(mean(row["nll"] + row["nll_elsewhere"]))}


def _judged(wanted: Wanted, left: Results, right: Results, key: str) -> Ordering:
    """What the rows of the two names say on one text, or on both together."""
    where, change, spread = TEXTS.get(key, ""), left[key] / right[key] - 1, _spread(left, right, key)
    if wanted.share is not None:
        told = f" (± {spread:.2%})" if spread is not None else ""
        says = f"{wanted.left} within {wanted.share:.0%} of {wanted.right}: {change:+.2%}{told}{where}"
        return Ordering(says, abs(change) <= wanted.share)
    margin = f" + {wanted.margin:.0%}" if wanted.margin else ""
    told = f": {change:+.1%} (± {spread:.1%})" if spread is not None else ""
    says = f"{wanted.left} {left[key]:.3f} ≤ {wanted.right} {right[key]:.3f}{margin}{told}{where}"
    return Ordering(says, left[key] <= right[key] * (1 + wanted.margin))


def _spread(left: Results, right: Results, key: str) -> float | None:
    """The standard error of left / right − 1, from the windows' differences of ln perplexity, pair by pair; None where a row
    lacks them."""
    names = {"perplexity": ("nll",), "elsewhere": ("nll_elsewhere",), "both": ("nll", "nll_elsewhere")}[key]
    if not all(name in row for name in names for row in (left, right)):
        return None
    pairs = [pair for name in names for pair in zip(left[name], right[name], strict=True)]
    if len(pairs) < 2:
        return None
    differences = [one - other for one, other in pairs]
    return stdev(differences) / math.sqrt(len(differences)) * math.exp(mean(differences))


def _write(keep: Path | None, results: Results) -> None:
    if keep is None:
        return
    unfinished = keep.with_name(f".{keep.name}")
    unfinished.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(unfinished, keep)
