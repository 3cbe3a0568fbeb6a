"""A run's figures as plain data, for tables and JSON. Times in seconds, None where there is none."""

from typing import Any

from steelyard.sim.histogram import Histogram
from steelyard.sim.run import Result

PERCENTILES = (0.5, 0.9, 0.99)


def summary(result: Result) -> dict[str, Any]:
    """Everything that matters of one run."""
    record = result.record
    return {
        "attainment": _round(result.attainment),
        "attainment_over_time": _round(result.attainment_over_time),
        "ttft_attainment": _round(record.ttft_met / record.ended if record.ended else 0.0),
        "tpot_attainment": _round(record.tpot_met / record.ended if record.ended else 0.0),
        "goodput_per_accelerator": _round(result.goodput),
        "accelerator_hours": _round(result.accelerator_hours),
        "requests": {
            "arrived": record.arrived,
            "completed": record.completed,
            "failed": record.failed,
            "refused": record.refused,
            "retried": record.retries,
            "gave_up": record.gave_up,
        },
        "worst_wait_seconds": _round(record.worst_wait),
        "ttft_seconds": _distribution(record.ttft),
        "tpot_seconds": _distribution(record.tpot),
        "attainment_by_prompt_quartile": [
            {
                "prompt_tokens": [part.least, part.most],
                "requests": part.share.judged,
                "attainment": _round(part.share.value),
            }
            for part in record.quartiles()
        ],
        "attainment_by_prompt_tokens": {
            name: {"requests": share.judged, "attainment": _round(share.met / share.judged)}
            for name, share in sorted(record.classes.items(), key=lambda item: int(item[0].split("-")[0].rstrip("+")))
        },
        "simulated_seconds": _round(result.seconds),
        "peak_replicas": result.peak_replicas,
        "starts": result.starts,
        "stops": result.stops,
        "role_changes": result.role_changes,
        "role_changes_per_minute": _round(result.role_changes_per_minute),
        "preemptions": result.preemptions,
    }


def timeline(result: Result) -> list[dict[str, Any]]:
    """The run over time."""
    return [
        {
            "at": _round(point.at),
            "ready": point.ready,
            "starting": point.starting,
            "draining": point.draining,
            "prefill_queue": point.prefill_queue,
            "decode_queue": point.decode_queue,
            "in_flight": point.in_flight,
        }
        for point in result.timeline
    ]


def _distribution(histogram: Histogram) -> dict[str, float | None]:
    named: dict[str, float | None] = {"mean": _round(histogram.mean)}
    for share in PERCENTILES:
        named[f"p{share * 100:g}"] = _round(histogram.percentile(share))
    named["max"] = _round(histogram.greatest) if histogram.count else None
    return named


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
