"""`python -m bench.operator.unchanged KUBECONFIG NAMESPACE NAME COUNT`: what one reconcile costs when nothing changed.

The reconcile is the operator's own, called in one thread; its CPU is the thread's. Two kinds take turns: the look that follows
an event, which leaves out what is at rest, and the periodic one at everything. Prints JSON: calls, bytes and writes of one of
each, and the median and the least of its CPU in milliseconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from datetime import UTC, datetime

from steelyard.decide.site import Site
from steelyard.observe.client import connect
from steelyard.observe.wire import Answer
from steelyard.run.reconcile import Reconciler
from steelyard.run.rest import Rest

SITE = Site(
    "bench/gateway:1", "bench/engine:1", "IfNotPresent", (), "steelyard-system"
)  # the children in force are kept
SETTLING = 3  # reconciles before it counts: connections are made, code is warm


class Looks:
    """Reconciles of one kind and what they took."""

    def __init__(self, kubeconfig: str, full_seconds: float) -> None:
        self.methods: list[str] = []
        self.sizes: list[int] = []
        self.spent: list[float] = []
        api = connect(kubeconfig, told=self._told)
        self._reconcile = Reconciler(api, SITE, "bench", 300, rest=Rest(full_seconds))

    def _told(self, method: str, answer: Answer) -> None:
        self.methods.append(method)
        self.sizes.append(answer.sent + answer.received)

    def settle(self, namespace: str, name: str) -> None:
        """Make connections, warm the code, and forget what that took."""
        for _ in range(SETTLING):
            self._reconcile(namespace, name, 0, datetime.now(UTC))
        self.methods.clear()
        self.sizes.clear()

    def once(self, namespace: str, name: str) -> None:
        before = time.thread_time()
        self._reconcile(namespace, name, 0, datetime.now(UTC))
        self.spent.append(1e3 * (time.thread_time() - before))

    def figures(self) -> dict[str, float]:
        count = len(self.spent)
        return {
            "calls": len(self.methods) / count,
            "bytes": sum(self.sizes) / count,
            "writes": sum(method != "GET" for method in self.methods) / count,
            "cpu_ms": statistics.median(self.spent),
            "cpu_ms_least": min(self.spent),
        }


def main(kubeconfig: str, namespace: str, name: str, count: int) -> dict[str, dict[str, float]]:
    """Measure both kinds `count` times."""
    kinds = {"event": Looks(kubeconfig, full_seconds=1e9), "periodic": Looks(kubeconfig, full_seconds=0)}
    for looks in kinds.values():
        looks.settle(namespace, name)
    for _ in range(count):
        for looks in kinds.values():
            looks.once(namespace, name)
    return {kind: looks.figures() for kind, looks in kinds.items()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))))
