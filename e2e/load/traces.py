"""Readers of traces. What a file is, its columns say:

| columns | format | time |
|---|---|---|
| `TIMESTAMP,ContextTokens,GeneratedTokens` (CSV) | Azure LLM inference trace 2023 | date and time, counted from the first row |
| `timestamp`, `input_length`, `output_length`, `hash_ids` (JSON lines) | Mooncake (FAST'25) | milliseconds |
| `at,prompt_tokens,output_tokens` (CSV or JSON lines) | our own | seconds |

A length of 0 becomes 1, since no request is empty. Rows out of order are sorted.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from e2e.load.arrivals import Arrival, Schedule
from e2e.load.errors import LoadError

Row = Mapping[str, Any]


def read(path: Path) -> Schedule:
    """The arrivals of a trace in order of time; raises LoadError with the line that cannot be read."""
    if not path.is_file():
        raise LoadError(f"There is no trace {path}.")
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = list(_csv(path, lines) if path.suffix == ".csv" else _json_lines(path, lines))
    if not rows:
        raise LoadError(f"{path} holds no requests.")
    reader = _reader(path, rows[0][1])
    found = [_arrival(path, line, row, reader) for line, row in rows]
    first = min(found, key=lambda one: one.at).at if reader is _azure else 0.0
    return tuple(
        sorted(
            (Arrival(one.at - first, one.prompt_tokens, one.output_tokens, one.blocks) for one in found),
            key=lambda one: one.at,
        )
    )


def _csv(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(lines)
    for row in reader:
        yield reader.line_num, row


def _json_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise LoadError(f"{path}, line {number}: not JSON ({error}).") from None
        if not isinstance(row, dict):
            raise LoadError(f"{path}, line {number}: not an object.")
        yield number, row


def _reader(path: Path, row: Row) -> Callable[[Row], Arrival]:
    for columns, reader in (
        ({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, _azure),
        ({"timestamp", "input_length", "output_length"}, _mooncake),
        ({"at", "prompt_tokens", "output_tokens"}, _own),
    ):
        if columns <= row.keys():
            return reader
    raise LoadError(
        f"{path} has the columns {', '.join(map(str, row))}, which no reader knows. Name them at,prompt_tokens,output_tokens "
        "(seconds, tokens, tokens)."
    )


def _arrival(path: Path, line: int, row: Row, reader: Callable[[Row], Arrival]) -> Arrival:
    try:
        found = reader(row)
    except KeyError as error:
        raise LoadError(f"{path}, line {line}: {error} is missing.") from None
    except (TypeError, ValueError) as error:
        raise LoadError(f"{path}, line {line}: {error}.") from None
    if not math.isfinite(found.at) or (found.at < 0 and reader is not _azure):
        raise LoadError(f"{path}, line {line}: the time {found.at} is not a number from 0 on.")
    if min(found.prompt_tokens, found.output_tokens) < 0:
        raise LoadError(f"{path}, line {line}: a length below 0.")
    return Arrival(found.at, max(1, found.prompt_tokens), max(1, found.output_tokens), found.blocks)


def _azure(row: Row) -> Arrival:
    # Seven digits of a second are one more than datetime keeps; the time zone, where a row has one, is everywhere UTC.
    text = row["TIMESTAMP"].removesuffix("+00:00")
    whole, _, fraction = text.partition(".")
    at = (datetime.fromisoformat(whole) - datetime(2000, 1, 1)).total_seconds() + float(f"0.{fraction or 0}")
    return Arrival(at, int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _mooncake(row: Row) -> Arrival:
    blocks = tuple(int(block) for block in row.get("hash_ids", ()))
    return Arrival(float(row["timestamp"]) / 1000, int(row["input_length"]), int(row["output_length"]), blocks)


def _own(row: Row) -> Arrival:
    return Arrival(float(row["at"]), int(row["prompt_tokens"]), int(row["output_tokens"]))
