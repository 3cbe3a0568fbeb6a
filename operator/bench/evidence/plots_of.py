"""The plots beside the pages: file names and SVG, from the figures."""

from collections.abc import Mapping
from typing import Any

from steelyard.sim.plots import Axis, Series, image

from bench.evidence.kept import Figures
from bench.evidence.playing import name_of


def drawn(figures: Figures) -> dict[str, str]:
    """Every plot whose item was run."""
    makers = {"distserve": distserve, "frontier": frontier, "policies": policies, "fluid": fluid, "silicon": silicon}
    return {f"{name}.svg": make(figures[name]) for name, make in makers.items() if name in figures}


def distserve(found: Mapping[str, Any]) -> str:
    """Lines are ours, points are theirs."""
    rates = sorted({row["rate"] for row in found["rows"]})
    lines, points = [], []
    for rate in rates:
        rows = sorted((float(row["ratio"].split(":")[0]), row) for row in found["rows"] if row["rate"] == rate)
        lines.append(Series(f"{rate:g} req/s", [(place, row["ours"]) for place, row in rows]))
        points += [(place, row["theirs"]) for place, row in rows]
    return image("Attainment by ratio: ours (lines), DistServe's (points)", [*lines, Series("DistServe", points, "point")],
                 Axis("prefill replicas of eight"), Axis("share of requests", least=0, most=1))  # fmt: skip


def frontier(found: Mapping[str, Any]) -> str:
    """Every policy's single setting: lowest attainment of the traces over the hours of all."""
    points = [
        Series(name_of(row["policy"]), [(row["accelerator_hours"], row["lowest"])], "point") for row in found["rows"]
    ]
    return image("One setting for five traces", points, Axis("accelerator-hours in all", least=0),
                 Axis("lowest attainment", least=0, most=1))  # fmt: skip


def policies(found: Mapping[str, Any]) -> str:
    """The same behind other routers: one series a policy, one point a router."""
    names = dict.fromkeys(name_of(row["policy"]) for rows in found["routers"].values() for row in rows)
    points = [
        Series(name, [(row["accelerator_hours"], row["lowest"]) for rows in found["routers"].values() for row in rows
                      if name_of(row["policy"]) == name], "point")
        for name in names
    ]  # fmt: skip
    return image("One setting for five traces, behind three routers", points, Axis("accelerator-hours in all", least=0),
                 Axis("lowest attainment", least=0, most=1))  # fmt: skip


def fluid(found: Mapping[str, Any]) -> str:
    """Every policy on every load: attainment over hours in units of the oracle's."""
    names = dict.fromkeys(name_of(row["policy"]) for row in found["rows"])
    points = [
        Series(name, [(row["over_oracle"], row["attainment"]) for row in found["rows"]
                      if name_of(row["policy"]) == name], "point")
        for name in names
    ]  # fmt: skip
    return image(
        "Weeks in rates",
        points,
        Axis("accelerator-hours over the oracle's", logarithmic=True),
        Axis("attainment", most=1),
    )


def silicon(found: Mapping[str, Any]) -> str:
    """Measured TPOT over the bound of each deployment."""
    points = [(row["bound_ms"][1], row["measured_ms"][1]) for row in found["rows"]]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    return image("TPOT of 35 deployments", [Series("measured", points, "point"), Series("the bound", [(low, low), (high, high)])],
                 Axis("bound, ms", logarithmic=True), Axis("measured, ms", logarithmic=True))  # fmt: skip
