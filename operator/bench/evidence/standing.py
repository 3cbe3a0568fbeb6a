"""Where the law stands among its rivals behind one router, by how much is known when a rival's setting is chosen.

    tuned     on each trace the cheapest setting that reaches the attainment wanted there: hindsight, an upper bound
    single    the one setting that is best on all traces together: hindsight again
    carried   the setting that was tuned on one trace, run on the others: what a default is worth

The law has one default; the only thing it is compared by is that.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.evidence import oracle
from bench.evidence.playing import Row, by_load, hours, lowest, name_of, pair
from bench.evidence.rivals import LAW, SPACE, STATIC, WANTED
from bench.evidence.settings import Setting


def lines(rows: Sequence[Row], traces: Sequence[Setting]) -> list[dict[str, Any]]:
    """One line for the law, one for each rival with its best single setting, one for the fixed sizes of hindsight."""
    law = [row for row in rows if row["policy"] == LAW]
    fixed = [row for row in rows if name_of(row["policy"]) == STATIC]
    found = [{"policy": LAW, **figures(law, traces)}, *(_rival(name, rows, traces) for name in SPACE)]
    if fixed:
        sizes = {row["load"]: row["policy"].partition("=")[2] for row in fixed}
        found.append({"policy": "static, hindsight on each", "sizes": sizes, **figures(fixed, traces)})
    return found


def single(rows: Sequence[Row], name: str) -> str:
    """A rival's best single setting: the highest of the lowest attainments, up to what is wanted; then the cheapest."""
    mine = [row for row in rows if name_of(row["policy"]) == name]

    def rank(text: str) -> tuple[float, float]:
        here = [row for row in mine if row["policy"] == text]
        return -min(WANTED, lowest(here)), hours(here)

    texts: dict[str, None] = dict.fromkeys(row["policy"] for row in mine)
    return min(texts, key=rank)


def figures(rows: Sequence[Row], traces: Sequence[Setting]) -> dict[str, Any]:
    """One policy on the traces, one row each: the lowest attainment, hours in all and over the oracle's, who waits, who turns."""
    named = {trace.name: trace for trace in traces}
    least = sum(oracle.bound(named[row["load"]], row["attainment"]) for row in rows)
    parts = [[row["quarters"][place] for row in rows if place < len(row["quarters"])] for place in range(4)]
    return {
        "lowest": round(lowest(rows), 4),
        "accelerator_hours": round(hours(rows), 3),
        "over_oracle": round(hours(rows) / least, 2),
        "traces": {row["load"]: pair(row) for row in rows},
        "quarters": [round(sum(values) / len(values), 4) for values in parts if values],
        "worst_wait": round(max(row["worst_wait"] for row in rows), 1),
        "role_changes_per_minute": round(sum(row["role_changes_per_minute"] for row in rows) / len(rows), 2),
    }


def beating(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What attains as much as is wanted, or as the law's lowest where that is less, for fewer hours in all than the law: a best
    single setting, the fixed sizes of hindsight, or a setting that was tuned on one trace, which is judged on the others."""
    law, *others = found
    enough = min(WANTED, law["lowest"])
    named = [
        {"policy": line["policy"], **tried}
        for line in others
        for tried in (_whole(line), *({"how": f"tuned on {one['tuned_on']}", **one} for one in line.get("carried", ())))
    ]
    return [one for one in named if one["lowest"] >= enough and one["accelerator_hours"] < law["accelerator_hours"]]


def _whole(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of its own right: one setting for all traces, or the fixed sizes."""
    how, setting = ("best single setting", line["setting"]) if "setting" in line else ("in hindsight", STATIC)
    return {"how": how, "setting": setting, "lowest": line["lowest"], "accelerator_hours": line["accelerator_hours"]}


def _rival(name: str, rows: Sequence[Row], traces: Sequence[Setting]) -> dict[str, Any]:
    mine = [row for row in rows if name_of(row["policy"]) == name]
    tuned = {load: _cheapest(here) for load, here in by_load(mine).items()}
    best = single(rows, name)
    return {
        "policy": f"{name}, best single setting",
        "setting": best,
        **figures([row for row in mine if row["policy"] == best], traces),
        "tuned_on_each": {load: None if row is None else pair(row) for load, row in tuned.items()},
        "carried": [_carried(mine, row) for row in tuned.values() if row is not None],
    }


def _carried(rows: Sequence[Row], tuned: Row) -> dict[str, Any]:
    """Its lowest attainment on the loads that it was not tuned on, and its hours on all."""
    mine = [row for row in rows if row["policy"] == tuned["policy"]]
    others = [row for row in mine if row["load"] != tuned["load"]] or mine
    return {
        "tuned_on": tuned["load"],
        "setting": tuned["policy"],
        "lowest": round(lowest(others), 4),
        "accelerator_hours": round(hours(mine), 3),
    }


def _cheapest(rows: Sequence[Row]) -> Row | None:
    return min(
        (row for row in rows if row["attainment"] >= WANTED), key=lambda row: row["accelerator_hours"], default=None
    )
