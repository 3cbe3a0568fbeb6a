"""The result as JSON for programs and as a page for people."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from bench.gateway.interpreter import interpreter
from bench.operator.figures import FIGURES, GROWTH, Figure, goal, verdict
from bench.operator.measure import CHANGES, IDLE_SECONDS, MADE, UNCHANGED, AtSize


@dataclass(frozen=True)
class Conditions:
    """Where and how a result came to be; `imported_mib` is resident memory after imports alone."""

    measured: str
    cores: int
    load_average: float
    kernel: str
    python: str
    versions: dict[str, str]
    per_namespace: int
    imported_mib: dict[str, float]


def conditions(per_namespace: int, imported_mib: dict[str, float]) -> Conditions:
    """Those of this machine, now."""
    return Conditions(
        measured=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cores=os.cpu_count() or 1,
        load_average=round(os.getloadavg()[2], 1),
        kernel=platform.release(),
        python=interpreter().words,
        versions={name: version(name) for name in ("steelyard", "kopf", "pydantic")},
        per_namespace=per_namespace,
        imported_mib={name: round(size, 1) for name, size in imported_mib.items()},
    )


def as_json(where: Conditions, sizes: Sequence[AtSize]) -> dict[str, Any]:
    """Everything: conditions, the figures by size, which goals are met, and what was measured as it was."""
    return {
        "conditions": asdict(where),
        "figures": {f.name: {str(at.services): _rounded(f.of(at)) for at in sizes} for f in FIGURES},
        "goals_reached": {f.name: met for f in FIGURES if (met := verdict(f, sizes)) is not None},
        "measured": [asdict(at) for at in sizes],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def as_page(where: Conditions, sizes: Sequence[AtSize]) -> str:
    """A page in Markdown: the table, then how it was measured."""
    head = [
        f"| services | {' | '.join(f'{at.services:,}' for at in sizes)} | goal |",
        "|---|" + "---:|" * (len(sizes) + 1),
    ]
    return _PAGE.format(
        table="\n".join([*head, *(_row(figure, sizes) for figure in FIGURES)]), changes=CHANGES, idle=IDLE_SECONDS,
        unchanged=UNCHANGED, made=MADE, growth=GROWTH,
        versions=", ".join(f"{name} {number}" for name, number in where.versions.items()),
        measured=where.measured, cores=where.cores, load=where.load_average, kernel=where.kernel, python=where.python,
        per_namespace=f"{where.per_namespace:,}", **{f"imported_{name}": size for name, size in where.imported_mib.items()},
    )  # fmt: skip


def _row(figure: Figure, sizes: Sequence[AtSize]) -> str:
    met = {None: "", True: " ✓", False: " missed"}[verdict(figure, sizes)]
    values = " | ".join(f"{figure.of(at):,.{figure.digits}f}" for at in sizes)
    return f"| {figure.words} | {values} | {goal(figure)}{met} |"


_PAGE = """# Operator: what a service and a change cost

Written by `make bench`; all numbers are in [operator.json](operator.json). The law that they are held to: **the operator's work
must not grow faster than the fleet**. What a change costs must not depend on how many services there are; start, rest and memory
may grow with their number, and no faster.

{table}

Of the memory, the interpreter alone takes {imported_python} MiB, with kopf {imported_kopf} MiB, and with all that the operator
imports {imported_operator} MiB.

## How it was measured

{measured}, {cores} cores shared with other work (load average {load}), Linux {kernel}, operator on Python {python}; {versions}.

etcd and a kube-apiserver run alone: no controllers, scheduler or kubelets, so nobody else calls and nothing moves by itself. The
operator runs as it does in its pod, with the rights of the chart. Each service is `docs/examples/smollm2.yaml` (17 children), at
most {per_namespace} of them share a namespace; the benchmark plays the controllers that would make four ready pods for each.

- **unchanged reconcile**: one service is reconciled {unchanged} times by the operator's own code in one thread, as after an event
  (what is at rest is left out) and as every five minutes (everything is read), in turn; CPU is the thread's. The median suffers
  from other work on the machine, which empties the caches between two steps; the least hardly does.
- **a changed objective**: {changes} times, a second apart, five on the same service, a field of the spec gets another value that
  reaches one child, the gateway's settings. The child is rehearsed and written, the revision stored, the status written, an
  event told; then the operator hears of its own writes and looks again.
- **a pod lost or ready**: {changes} times a prefill pod stops or starts being ready, which the status and an event tell.
- **a new service**: at most {made} at each size are made by the operator, the others written by the benchmark as it would.
- **start-up**: a fresh process finds all services as they should be, and looks at each once.
- **at rest**: {idle:g} s without any change, plus the periodic look at every service (every five minutes), reckoned from the
  figures above.

Calls are counted by the API server (requests of the operator's account, watches included), bytes are the bodies both ways, CPU is
the process's own. What the operator takes at rest is taken off the changes. A cost counts as constant if with the largest fleet
it is at most {growth:g} times that with the smallest. CPU bears the company of other work better than times do, and worse than
counts: the same work takes up to twice the CPU time while others empty the caches. CPU of changes is therefore also given in
yardsticks, a fixed piece of like work that a thread beside it does twice a second (`bench/operator/yardstick.py`); whether it
is constant is told by these.
"""
