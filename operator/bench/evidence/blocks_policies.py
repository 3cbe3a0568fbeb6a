"""Blocks of the law beside its rivals: one setting each, tuned on each trace, carried from one trace to the others."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.evidence import standing
from bench.evidence.markdown import pair, pairs, table
from bench.evidence.playing import name_of
from bench.evidence.rivals import WANTED

Found = Mapping[str, Any]
TITLES = {
    "gateway": "our gateway",
    "wspt": "Dynamo's queue (wspt)",
    "least-loaded": "a least-loaded router",
    "round-robin": "round robin",
}


def frontier(found: Found) -> str:
    """Behind our gateway."""
    return f"{compared(found['rows'])}\n![One setting for five traces](frontier.svg)\n"


def policies(found: Found) -> str:
    """Behind the routers of others, one after the other."""
    parts = [f"### Behind {TITLES[router]}\n{compared(rows)}" for router, rows in found["routers"].items()]
    loads = list(next(iter(found["holdout"].values()))["traces"])
    rows = [(TITLES[router], law["lowest"], law["accelerator_hours"], *(pair(law["traces"][name]) for name in loads))
            for router, law in found["holdout"].items()]  # fmt: skip
    heads = ("ours on the hold-out loads, behind", "lowest", "hours in all", *loads)
    parts.append(f"### Loads that nobody looked at\n{table(heads, rows)}")
    return "\n".join(parts) + "\n![One setting for five traces, by router](policies.svg)\n"


def ablation(found: Found) -> str:
    """One row a part."""
    return pairs(found["rows"], "the law with", "policy")


def holdout(found: Found) -> str:
    """The law on loads that nobody looked at."""
    heads = (
        "hold-out load",
        "attainment",
        "acc.-hours",
        "shortest quarter … longest",
        "worst wait s",
        "role changes / min",
    )
    body = [(row["load"], row["attainment"], row["accelerator_hours"], _quarters(row["quarters"]), row["worst_wait"],
             row["role_changes_per_minute"]) for row in found["rows"]]  # fmt: skip
    law = found["law"]
    below = ", ".join(found["below"]) or "none"
    return table(heads, body) + (
        f"\n{law['accelerator_hours']:g} hours in all, {law['over_oracle']:g} times the oracle's. Below {found['wanted']:g}:"
        f" {below}.\n"
    )


def compared(rows: Sequence[Found]) -> str:
    """One router: single settings, who waits and who turns, tuned on each trace, and carried to the others."""
    rivals = [row for row in rows if "tuned_on_each" in row]
    names = list(rows[0]["traces"])
    heads = ("policy", "over the oracle", "shortest quarter … longest", "worst wait s", "role changes / min")
    body = [(row["policy"], row["over_oracle"], _quarters(row["quarters"]), row["worst_wait"], row["role_changes_per_minute"])
            for row in rows]  # fmt: skip
    tuned = [(name_of(row["policy"]), *(pair(row["tuned_on_each"][name]) for name in names)) for row in rivals]
    carried = [(name_of(row["policy"]), *(_carried(row, name) for name in names)) for row in rivals]
    parts = (
        pairs(rows, "attainment @ hours", "policy"),
        table(heads, body),
        table(("tuned on that very trace", *names), tuned),
        table(("tuned on that trace, lowest of the others @ hours of all", *names), carried),
    )
    return "\n".join(parts) + f"\n{_beaten(standing.beating(rows))}\n"


def _beaten(beaten: Sequence[Found]) -> str:
    if not beaten:
        return (
            f"Nobody attains {WANTED:g}, or as much as the law's lowest where that is less, for fewer hours: no best single"
            " setting, none that was tuned on one trace, judged on the others, and no fixed sizes of hindsight."
        )
    settings: dict[str, Found] = {one["setting"]: one for one in reversed(beaten)}
    told = "; ".join(
        f"`{text}` ({one['how']}): {one['lowest']:.3f} @ {one['accelerator_hours']:.4g}"
        for text, one in reversed(settings.items())
    )
    return f"**The law is beaten**: as much as is wanted, or as the law's lowest, for fewer hours in all by {told}."


def _carried(row: Found, name: str) -> str:
    found = next((one for one in row["carried"] if one["tuned_on"] == name), None)
    return pair(None if found is None else [found["lowest"], found["accelerator_hours"]])


def _quarters(values: Sequence[float]) -> str:
    return " … ".join(f"{value:.3f}" for value in values)
