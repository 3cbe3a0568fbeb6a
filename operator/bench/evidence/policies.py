"""The law beside its rivals behind the routers of others. Rivals are tuned anew behind each.

The law's quarter-second windows come from our gateways: behind other routers it has none, and is told what `observe` knows there:
what prefill replicas finish, what waits in them, and of no judged request.
"""

from collections.abc import Sequence
from typing import Any

from steelyard.sim.scenario import Routing

from bench.evidence import holdout, standing
from bench.evidence.rivals import SETTINGS, WANTED, behind
from bench.evidence.settings import TRACES, Setting

OTHERS = (Routing.WSPT, Routing.LEAST_LOADED, Routing.ROUND_ROBIN)


def compare(
    routers: Sequence[Routing] = OTHERS, traces: Sequence[Setting] = TRACES, count: int = SETTINGS
) -> dict[str, Any]:
    """All of it, by router. It is reported whatever it is: `ok` says that the law ran everywhere; who beats it is named."""
    found = {router.value: standing.lines(behind(router, traces, count), traces) for router in routers}
    beaten = {router: standing.beating(rows) for router, rows in found.items()}
    elsewhere = {router.value: holdout.law(router) for router in routers}
    return {"name": "policies", "ok": True, "worst": min(rows[0]["lowest"] for rows in found.values()), "wanted": WANTED,
            "beaten_by": beaten, "routers": found, "holdout": elsewhere}  # fmt: skip
