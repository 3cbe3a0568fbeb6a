"""Files that commands write: checked before anything is computed, and written after the tables are shown."""

import os
from collections.abc import Mapping
from pathlib import Path

import typer


def to_output(path: Path | None) -> bool:
    """Whether a path says that a text goes to the output."""
    return path is not None and str(path) == "-"


def check(outputs: Mapping[str, Path | None]) -> None:
    """Raise ValueError, naming the flag and the path, for what could not be written, or not apart; nothing is touched."""
    named = {flag: path for flag, path in outputs.items() if path is not None}
    seen: dict[Path, str] = {}
    for flag, path in named.items():
        place = path if to_output(path) else path.absolute()
        if place in seen:
            raise ValueError(f"{seen[place]} and {flag} are both {path}, which would mix them; name two files")
        seen[place] = flag
        if not to_output(path):
            _check(flag, path)


def _check(flag: str, path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{flag} is {path}, which is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{flag} is {path}, and there is no folder {path.parent}; make it, or name another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{flag} is {path}, where you may not write; name another file")


def put(flag: str, path: Path | None, text: str) -> None:
    """Write a text to a file, or to the output where the path is -. Raises ValueError where the disk does not take it."""
    if path is None:
        return
    if to_output(path):
        typer.echo(text, nl=False)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise ValueError(f"{flag} {path}: {failure.strerror or failure}; name another file") from failure
