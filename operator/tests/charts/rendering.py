"""Charts rendered by the real Helm, as lists of objects."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from e2e import tools

CHARTS = Path(__file__).parents[3] / "charts"
NAMES = ("steelyard", "steelyard-crds", "steelyard-demo")


class RefusedError(Exception):
    """Helm refused; the message is what it printed."""


def helm(*arguments: str) -> str:
    done = subprocess.run([str(tools.helm()), *arguments], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RefusedError(done.stdout + done.stderr)
    return done.stdout


def rendered(
    chart: str, namespace: str = "steelyard-system", release: str | None = None, **values: Any
) -> list[dict[str, Any]]:
    """Render a chart with values given by name (`watchNamespaces=["a"]`)."""
    given = tuple(f"{key}={json.dumps(value)}" for key, value in values.items())
    return list(_rendered(chart, release or chart, namespace, given))


@cache
def _rendered(chart: str, release: str, namespace: str, values: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    flags = [part for value in values for part in ("--set-json", value)]
    text = helm("template", release, str(CHARTS / chart), "-n", namespace, *flags)
    return tuple(document for document in yaml.safe_load_all(text) if document)


def one(objects: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The only object of a kind (and name)."""
    (found,) = [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    return found
