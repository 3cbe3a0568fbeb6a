"""The figures of all items as they were last run: docs/evidence/figures.json, one line an item, so that changes can be read."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "evidence"
FILE = FOLDER / "figures.json"

Figures = dict[str, dict[str, Any]]


def read(file: Path = FILE) -> Figures:
    """All figures, by item."""
    found: Figures = json.loads(file.read_text()) if file.exists() else {}
    return found


def keep(figures: dict[str, Any], file: Path = FILE) -> None:
    """Put one item's figures in the place of those that were kept of it."""
    everything = read(file) | {figures["name"]: figures}
    lines = [f"{json.dumps(name)}: {json.dumps(everything[name])}" for name in sorted(everything)]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
