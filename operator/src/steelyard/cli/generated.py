"""Files that are made from the code and kept in the repository: written, or compared so that a stale one fails CI."""

import difflib
from collections.abc import Mapping
from pathlib import Path


def write(files: Mapping[Path, str]) -> list[Path]:
    """Write the files that differ from what is on disk, and give their paths."""
    changed = [path for path, text in files.items() if _read(path) != text]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return changed


def difference(files: Mapping[Path, str]) -> str:
    """Give a unified diff from what is on disk to what the code makes; empty: nothing is stale."""
    return "".join(
        "".join(
            difflib.unified_diff(
                _read(path).splitlines(keepends=True), text.splitlines(keepends=True), f"{path}", f"{path} (generated)"
            )
        )
        for path, text in files.items()
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
