"""Blocks of the page that shows where the autoscaler stands: against floors, rivals, and the oracle."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.evidence import blocks_policies
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
    """The five traces by start."""
    heads = (
        "trace, start",
        "attainment",
        "worst draw",
        "acc.-hours",
        "over the oracle",
        "role changes / min",
        "worst wait s",
    )
    keys = ("attainment", "worst_draw", "accelerator_hours", "over_oracle", "role_changes_per_minute", "worst_wait")
    return table(
        heads, [(f"{row['trace']}, {row['startup']:g} s", *(row[key] for key in keys)) for row in found["rows"]]
    )


def robustness(found: Found) -> str:
    """One setting each: by start, then by router, then on loads that nobody tuned on."""
    parts = [
        _one_setting(
            [{**row, "of": f"{row['start']:g} s, {row['policy']}"} for row in found["starts"]], "start, policy"
        ),
        _words(found["beaten_by"], "at {:g} s"),
        three_draws(found["starts"]),
        pairs([{**row, "of": f"{row['router']}, {row['policy']}"} for row in found["routers"]], "router, policy", "of"),
        _words(found["beaten_behind"], "behind {}"),
        _one_setting([{**row, "of": row["policy"]} for row in found["holdout"]], "nine hold-out loads"),
    ]
    return "\n".join(parts)


def three_draws(rows: Sequence[Found]) -> str:
    """Means of the draws, and the lowest attainment of each."""
    heads = ("start, policy, three draws", "lowest of each draw", "hours in all", "over the oracle")

    def mean(row: Found, key: str) -> float:
        return round(sum(float(draw[key]) for draw in row["draws"]) / len(row["draws"]), 2)

    body = [
        (
            f"{row['start']:g} s, {row['policy']}",
            ", ".join(f"{draw['lowest']:.3f}" for draw in row["draws"]),
            mean(row, "accelerator_hours"),
            mean(row, "over_oracle"),
        )
        for row in rows
    ]
    return table(heads, body)


def _one_setting(rows: Sequence[Found], head: str) -> str:
    """One policy a row."""
    names = list(rows[0]["traces"])
    heads = (head, "lowest", "hours in all", "over the oracle", "worst wait s", *names)
    keys = ("lowest", "accelerator_hours", "over_oracle", "worst_wait")
    body = [(row["of"], *(row[key] for key in keys), *(pair(row["traces"][name]) for name in names)) for row in rows]
    return table(heads, body)


def _words(beaten: Sequence[Sequence[Any]], where: str) -> str:
    if not beaten:
        return "No rival has both a higher lowest attainment and fewer hours than the law.\n"
    told = ", ".join(f"{name} {where.format(place)}" for place, name in beaten)
    return f"**A higher lowest attainment for fewer hours than the law**: {told}.\n"


def oracle(found: Found) -> str:
    """The law over the oracle."""
    heads = ("trace", "attainment", "acc.-hours", "the oracle's", "over the oracle")
    keys = ("trace", "attainment", "accelerator_hours", "oracle_hours", "ratio")
    return table(heads, [tuple(row[key] for key in keys) for row in found["rows"]])


def fluid(found: Found) -> str:
    """Weeks in rates, and how far rates lie from requests."""
    heads = ("load", "policy", "attainment", "acc.-hours", "over the oracle", "role changes / min")
    keys = ("load", "policy", "attainment", "accelerator_hours", "over_oracle", "role_changes_per_minute")
    weeks = table(heads, [tuple(row[key] for key in keys) for row in found["rows"]])
    return f"{weeks}\n{_agreement(found['agreement'])}\n![Weeks in rates](fluid.svg)\n"


def _agreement(found: Found) -> str:
    """How far rates lie from requests, with what is not judged in brackets."""
    rows = [
        (f"{row['load']}, {row['policy']}", pair(row["requests"]), pair(row["rates"]), *_apart(row))
        for row in found["rows"]
    ]
    shares, hours = found["limits"]
    return table(("both ways", "by requests", "by rates", "attainment", "hours"), rows) + (
        f"\nIn brackets what is not judged: attainments where requests attain less than {found['serving']:g}, and hours of runs of"
        f" less than {found['long']:g} accelerator-hours. The others lie at most {found['apart']:.3f} and"
        f" {found['hours_apart']:.1%} apart; {shares:g} and {hours:.0%} are allowed.\n"
    )


def _apart(row: Found) -> list[str]:
    (attainment, hours), (liquid, paid) = row["requests"], row["rates"]
    told = f"{liquid - attainment:+.3f}", f"{paid / hours - 1:+.1%}"
    return [text if judged else f"({text})" for text, judged in zip(told, row["judged"], strict=True)]


BLOCKS: Mapping[str, Callable[[Found], str]] = {
    "floor-five-fixed": five_fixed,
    "floor-traces": traces,
    "floor-mixes": mixes,
    "floor-moving": moving,
    "startups": startups,
    "robustness": robustness,
    "oracle": oracle,
    "fluid": fluid,
    "frontier": blocks_policies.frontier,
    "policies": blocks_policies.policies,
    "ablation": blocks_policies.ablation,
    "holdout": blocks_policies.holdout,
}
