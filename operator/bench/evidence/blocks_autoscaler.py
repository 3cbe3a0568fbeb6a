"""Blocks of the page that shows where the autoscaler stands: against floors, rivals, and the oracle."""

from collections.abc import Callable, Mapping
from typing import Any

from bench.evidence.markdown import pair, pairs, table

Found = Mapping[str, Any]
MEASURED = ("attainment", "over_time", "accelerator_hours", "role_changes_per_minute", "worst_wait")
HEADS = ("attainment", "mean over half minutes", "acc.-hours", "role changes / min", "worst wait s")


def five_fixed(found: Found) -> str:
    """One line."""
    return f"{found['worst']:.3f} at {found['accelerator_hours']:.3f} accelerator-hours; the floor is {found['limit']:g}.\n"


def traces(found: Found) -> str:
    """The five traces."""
    rows = [(row["trace"], *(row.get(key) for key in MEASURED)) for row in found["rows"]]
    return table(("trace", *HEADS), rows) + (
        f"\nLowest {found['worst']:.3f} (floor {found['limit']:g}); {found['accelerator_hours']:g} hours in all (floor"
        f" {found['hours_limit']:g}).\n"
    )


def mixes(found: Found) -> str:
    """Role changes against the best static ratio."""
    heads = (
        "mix, fixed budget",
        "role changes",
        "best static ratio",
        "its attainment",
        "gain",
        "wanted",
        "role changes / min",
    )
    return table(heads, [
        (row["mix"], row["attainment"], row["best_static"], row["static"]["attainment"], f"{100 * row['gain']:+.1f}",
         None if row["gain_wanted"] is None else f"{100 * row['gain_wanted']:+g}", row["role_changes_per_minute"])
        for row in found["rows"]
    ])  # fmt: skip


def moving(found: Found) -> str:
    """Mixes with scaling."""
    heads = ("mix, with scaling", "attainment", "wanted", "acc.-hours", "at most", "role changes / min")
    keys = ("accelerator_hours", "hours_wanted", "role_changes_per_minute")
    body = [(row["mix"], row["attainment"], found["limit"], *(row[key] for key in keys)) for row in found["rows"]]
    return table(heads, body)


def startups(found: Found) -> str:
    """The five traces at other starts."""
    rows = [(f"{row['trace']}, {row['startup']:g} s", *(row.get(key) for key in MEASURED)) for row in found["rows"]]
    return table(("trace, start", *HEADS), rows)


def frontier(found: Found) -> str:
    """The law and the rivals, each with its best single setting; then what tuning on each trace would give."""
    single = pairs(found["rows"], "attainment @ hours", "policy")
    rivals = [row for row in found["rows"] if row.get("tuned_on_each")]
    if not rivals:
        return single
    names = list(rivals[0]["tuned_on_each"])
    body = [(row["policy"].split(",")[0], *(pair(row["tuned_on_each"][name]) for name in names)) for row in rivals]
    tuned = table(("tuned on that very trace", *names), body)
    return f"{single}\n{tuned}\n![One setting for five traces](frontier.svg)\n"


def robustness(found: Found) -> str:
    """One setting each: by start, then by router."""
    parts = []
    for key, head in (("starts", "start"), ("routers", "router")):
        rows = found.get(key) or [row for row in found.get("rows", ()) if head in row]
        told = [{**row, "of": f"{row[head]:g} s, {row['policy']}" if head == "start" else f"{row[head]}, {row['policy']}"}
                for row in rows]  # fmt: skip
        if told:
            parts.append(pairs(told, f"{head}, policy", "of"))
    return "\n".join(parts)


def oracle(found: Found) -> str:
    """The law over the oracle."""
    heads = ("trace", "attainment", "acc.-hours", "the oracle's", "over the oracle")
    keys = ("trace", "attainment", "accelerator_hours", "oracle_hours", "ratio")
    return table(heads, [tuple(row[key] for key in keys) for row in found["rows"]])


def fluid(found: Found) -> str:
    """Weeks in rates, and how far rates lie from requests."""
    heads = ("load", "policy", "attainment", "acc.-hours", "over the oracle", "role changes / min")
    keys = ("load", "policy", "attainment", "accelerator_hours", "over_oracle", "role_changes_per_minute")
    body = [
        (f"{row['load']}, {row['policy']}", pair(row["requests"]), pair(row["rates"])) for row in found["agreement"]
    ]
    both = table(("both ways", "by requests", "by rates"), body)
    return f"{table(heads, [tuple(row[key] for key in keys) for row in found['rows']])}\n{both}\n![Weeks in rates](fluid.svg)\n"


BLOCKS: Mapping[str, Callable[[Found], str]] = {
    "floor-five-fixed": five_fixed,
    "floor-traces": traces,
    "floor-mixes": mixes,
    "floor-moving": moving,
    "startups": startups,
    "frontier": frontier,
    "robustness": robustness,
    "oracle": oracle,
    "fluid": fluid,
}
