"""Blocks of the pages that show whether the simulator and the roofline can be trusted."""

from collections.abc import Callable, Mapping
from typing import Any

from bench.evidence.markdown import table

Found = Mapping[str, Any]


def distserve(found: Found) -> str:
    """Every cell, ours and theirs."""
    rates = sorted({row["rate"] for row in found["rows"]})
    by = {(row["ratio"], row["rate"]): row for row in found["rows"]}
    ratios = sorted({row["ratio"] for row in found["rows"]})
    heads = ("ours (theirs)", *(f"{rate:g} req/s" for rate in rates))
    body = [
        (ratio, *(f"{by[ratio, rate]['ours']:.3f} ({by[ratio, rate]['theirs']:.3f})" for rate in rates))
        for ratio in ratios
    ]
    apart = max(abs(row["ours"] - row["theirs"]) for row in found["rows"])
    return table(heads, body) + (
        f"\nLargest difference {100 * apart:.2f} points, {found['worst']:g} of what two standard deviations of a binomial at 400"
        f" requests allow. Best ratio: {found['optimum']}. Plot: [distserve.svg](distserve.svg).\n"
    )


def vllm_runs(found: Found) -> str:
    """Judged on the half that was not fitted, and carried across."""
    names = ("ttft_mean", "ttft_p99", "tpot_mean", "tpot_p99")
    heads = ("TTFT mean", "TTFT p99", "TPOT mean", "TPOT p99")
    own = [(row["run"], *(_percent(row[name]) for name in names)) for row in found["rows"]]
    across = [(f"{row['from']} → {row['to']}", *(_percent(row[name]) for name in names)) for row in found["across"]]
    first = table(("fitted on one half, judged on the other", *heads), own)
    return f"{first}\n{table(('coefficients of … → judged on …', *heads), across)}"


def silicon(found: Found) -> str:
    """Medians, then every row."""
    medians = table(
        ("", "uncalibrated", "each left out of the fit"),
        [
            (name, *(f"{found[f'{key}_{kind}_median_percent']:g} %" for kind in ("uncalibrated", "left_out")))
            for name, key in (("TPOT, median error", "tpot"), ("TTFT, median error", "ttft"))
        ],
    )
    heads = ("deployment", "TTFT ms: measured, bound", "uncalibrated", "left out", "TPOT ms: measured, bound", "uncalibrated",
             "left out")  # fmt: skip
    body = []
    for row in found["rows"]:
        parts: list[str] = [str(row["row"])]
        for place in (0, 1):
            parts.append(f"{row['measured_ms'][place]:g}, {row['bound_ms'][place]:g}")
            parts += [f"{row[f'{kind}_percent'][place]:+.0f} %" for kind in ("uncalibrated", "left_out")]
        body.append(parts)
    said = (
        f"No row beats the bound; the nearest takes {found['closest_to_bound']:g} times it. The largest error of TPOT, left out, is"
        f" {found['worst']:g} %. For TTFT the fit is one constant, the median of {found['first_token_missing_seconds']:g} s that is"
        " missing.\n"
    )
    return f"{medians}\n{said}\n{table(heads, body)}"


def dynamo_static(found: Found) -> str:
    """Eight ratios: theirs, ours, and ours without the artefact."""
    heads = ("attainment @ GPU-hours", "Dynamo", "ours", "ours without its artefact")
    body = [
        (row["ratio"], *(f"{row[key][0]:.3f} @ {row[key][1]:.3f}" for key in ("dynamo", "ours", "without_artefact")))
        for row in found["rows"]
    ]
    return table(heads, body) + f"\nLargest difference of attainment {100 * found['worst']:.2f} points.\n"


def dynamo_inside(found: Found) -> str:
    """The law and Dynamo's best static sizes in Dynamo's own replay."""
    heads = ("in Dynamo's replay", "attainment", "floor", "GPU-hours", "at most", "TTFT p99 ms")
    return table(heads, [
        (row["policy"], row["attainment"], row.get("attainment_wanted"), row["hours"], row.get("hours_wanted"), row["ttft_p99_ms"])
        for row in found["rows"]
    ])  # fmt: skip


def speed(found: Found) -> str:
    """Requests a CPU-second; memory."""
    rates = table(("Azure conversations, eight replicas", "requests / CPU-s", "attainment"), [
        (f"× {row['speed']}", row["requests_per_cpu_second"], row["attainment"]) for row in found["rows"]
    ])  # fmt: skip
    return rates + (
        f"\nMemory grows by {found['memory_growth_bytes_per_request']:g} bytes a request between half and the end of two hours of"
        f" trace; the process never held more than {found['peak_rss_mib']} MiB.\n"
    )


def _percent(value: float) -> str:
    return f"{100 * value:+.1f} %"


BLOCKS: Mapping[str, Callable[[Found], str]] = {
    "distserve": distserve,
    "vllm-runs": vllm_runs,
    "silicon": silicon,
    "dynamo-static": dynamo_static,
    "dynamo-inside": dynamo_inside,
    "speed": speed,
}
