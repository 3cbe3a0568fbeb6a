"""The law beside its rivals behind our gateway; `policies` has the other routers."""

from collections.abc import Sequence
from typing import Any

from steelyard.sim.scenario import Routing

from bench.evidence import standing
from bench.evidence.rivals import SETTINGS, WANTED, behind
from bench.evidence.settings import TRACES, Setting


def compare(traces: Sequence[Setting] = TRACES, count: int = SETTINGS) -> dict[str, Any]:
    """All of it, the law's row first. It is ok where nobody beats the law, as `standing.beating` has it."""
    rows = standing.lines(behind(Routing.GATEWAY, traces, count), traces)
    beaten = standing.beating(rows)
    return {"name": "frontier", "ok": not beaten, "worst": rows[0]["lowest"], "wanted": WANTED, "beaten_by": beaten,
            "rows": rows}  # fmt: skip
