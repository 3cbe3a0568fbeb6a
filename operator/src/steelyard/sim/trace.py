"""Traces from files, read line by line: what arrived when.

| format   | file                                        | columns                                               |
|----------|---------------------------------------------|-------------------------------------------------------|
| azure    | .csv(.gz): Azure's LLM inference traces     | TIMESTAMP, ContextTokens, GeneratedTokens             |
| mooncake | .jsonl(.gz): Mooncake's, and Dynamo replay's | timestamp (ms), input_length, output_length, hash_ids |
| plain    | .csv(.gz): also what `e2e.load` reads       | at (s), prompt_tokens, output_tokens(, cached_tokens) |
| rate     | .csv(.gz): requests per second, no lengths  | t_s and rps (or rps_calibrated)                       |

The format is told by the first line. Times start at 0; the clock of a trace must not run backwards. Errors name the file,
the line, the field, and what was expected.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import IO, Any

from steelyard.sim.requests import Arrival

MOONCAKE_BLOCK = 512  # tokens of one hash id


class BadTrace(ValueError):
    """A trace that cannot be read; says where and why."""


def read(path: Path, *, speed: float = 1.0, start: float = 0.0, end: float | None = None) -> Iterator[Arrival]:
    """Read the requests of a trace, those within [start, end) of its own seconds, played `speed` times as fast."""
    if speed <= 0:
        raise BadTrace(f"speed is {speed}; it must be above 0")
    for arrival in _lines(path):
        if arrival.at < start:
            continue
        if end is not None and arrival.at >= end:
            return
        yield arrival._replace(at=(arrival.at - start) / speed)


def rates(path: Path) -> list[tuple[float, float]]:
    """Read a table of rates: (seconds, requests per second), rising in time."""
    with opened(path) as file:
        table = csv.DictReader(file)
        column = next((name for name in ("rps", "rps_calibrated") if name in (table.fieldnames or ())), None)
        if column is None or "t_s" not in (table.fieldnames or ()):
            raise BadTrace(f"{path}: columns {table.fieldnames}; a table of rates has t_s and rps (or rps_calibrated)")
        found = []
        for number, row in enumerate(table, start=2):
            found.append((_number(path, number, row, "t_s"), _number(path, number, row, column)))
    if not found:
        raise BadTrace(f"{path}: no rates in it")
    return found


def with_shared_cache(arrivals: Iterable[Arrival], block_tokens: int = MOONCAKE_BLOCK) -> Iterator[Arrival]:
    """Mark what one unlimited cache, shared by all replicas, would hold of each prompt: an upper bound of prefix reuse."""
    seen: set[int] = set()
    for arrival in arrivals:
        known = 0
        while known < len(arrival.blocks) and arrival.blocks[known] in seen:
            known += 1
        seen.update(arrival.blocks)
        cached = min(known * block_tokens, arrival.prompt - 16)
        yield arrival._replace(cached=max(0, cached), blocks=())


def _lines(path: Path) -> Iterator[Arrival]:
    with opened(path) as file:
        first = file.readline()
        if first.lstrip().startswith("{"):
            yield from _mooncake(path, first, file)
        elif "ContextTokens" in first:
            yield from _azure(path, first, file)
        elif first.startswith("at,prompt_tokens,output_tokens"):
            yield from _plain(path, first, file)
        else:
            raise BadTrace(
                f"{path}: line 1 is {first[:60]!r}; expected the header TIMESTAMP,ContextTokens,GeneratedTokens or"
                " at,prompt_tokens,output_tokens, or a JSON object with timestamp, input_length, output_length"
            )


def _azure(path: Path, header: str, file: IO[str]) -> Iterator[Arrival]:
    table = csv.DictReader(file, fieldnames=header.strip().split(","))
    origin: float | None = None
    before = 0.0
    for number, row in enumerate(table, start=2):
        at = _moment(path, number, row.get("TIMESTAMP"))
        origin = at if origin is None else origin
        before = _forward(path, number, before, at - origin)
        prompt, answer = (_count(path, number, row, name) for name in ("ContextTokens", "GeneratedTokens"))
        yield Arrival(before, max(1, prompt), max(1, answer))


def _plain(path: Path, header: str, file: IO[str]) -> Iterator[Arrival]:
    before = 0.0
    for number, row in enumerate(csv.DictReader(file, fieldnames=header.strip().split(",")), start=2):
        before = _forward(path, number, before, _number(path, number, row, "at"))
        prompt, answer = (_count(path, number, row, name) for name in ("prompt_tokens", "output_tokens"))
        cached = _count(path, number, row, "cached_tokens") if row.get("cached_tokens") else 0
        yield Arrival(before, max(1, prompt), max(1, answer), cached)


def _mooncake(path: Path, first: str, file: IO[str]) -> Iterator[Arrival]:
    origin: float | None = None
    before = 0.0
    for number, line in enumerate(chain((first,), file), start=1):
        if line.strip():
            origin, before, arrival = _object(path, number, line, origin, before)
            yield arrival


def _object(path: Path, number: int, line: str, origin: float | None, before: float) -> tuple[float, float, Arrival]:
    try:
        row = json.loads(line)
    except ValueError as failure:
        raise BadTrace(f"{path}: line {number} is not JSON: {failure}") from failure
    if not isinstance(row, dict):
        raise BadTrace(f"{path}: line {number} is {line.strip()[:60]!r}; expected a JSON object with timestamp, …")
    at = _number(path, number, row, "timestamp") / 1000
    origin = at if origin is None else origin
    at = _forward(path, number, before, at - origin)
    prompt, answer = (_count(path, number, row, name) for name in ("input_length", "output_length"))
    blocks = row.get("hash_ids") or ()
    if not isinstance(blocks, list | tuple) or not all(isinstance(block, int) for block in blocks):
        raise BadTrace(f"{path}: line {number}: hash_ids is {str(blocks)[:60]}; expected a list of whole numbers")
    return origin, at, Arrival(at, max(1, prompt), max(1, answer), 0, tuple(blocks))


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """Open a text, gzipped or not, with or without a byte order mark. What cannot be read raises `BadTrace`, while it is
    read too."""
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig") as file
        ):
            yield file
    except (OSError, EOFError, zlib.error) as failure:
        raise BadTrace(f"{path}: {getattr(failure, 'strerror', None) or failure}") from failure
    except UnicodeDecodeError as failure:
        raise BadTrace(
            f"{path}: is not UTF-8 ({failure.reason} at byte {failure.start}); save it as UTF-8"
        ) from failure
    except csv.Error as failure:
        raise BadTrace(f"{path}: is not CSV: {failure}") from failure


def _moment(path: Path, number: int, text: str | None) -> float:
    """Seconds of a time stamp, or of a plain number. Seven decimals, as Azure writes, are more than Python reads."""
    if text is None:
        raise BadTrace(f"{path}: line {number} has no TIMESTAMP")
    with suppress(ValueError):
        return _finite(float(text))
    try:
        whole, _, fraction = text.strip().partition(".")
        digits = fraction.partition("+")[0].rstrip("Z")
        return datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp() + (float(f"0.{digits}") if digits else 0.0)
    except ValueError as failure:
        raise BadTrace(
            f"{path}: line {number}: TIMESTAMP is {text!r}; expected a date and time, or seconds"
        ) from failure


def _forward(path: Path, number: int, before: float, at: float) -> float:
    if at < before - 1e-6:
        raise BadTrace(f"{path}: line {number} is {before - at:.3f} s before the line above it; sort the trace by time")
    return max(at, before)


def _number(path: Path, number: int, row: dict[str, Any], name: str) -> float:
    try:
        return _finite(float(row[name]))
    except (KeyError, TypeError, ValueError) as failure:
        raise BadTrace(f"{path}: line {number}: {name} is {row.get(name)!r}; expected a number") from failure


def _finite(value: float) -> float:
    """Give the number; raises ValueError for what is none, or without end."""
    if not isfinite(value):
        raise ValueError(value)
    return value


def _count(path: Path, number: int, row: dict[str, Any], name: str) -> int:
    value = _number(path, number, row, name)
    if value < 0 or value != int(value):
        raise BadTrace(f"{path}: line {number}: {name} is {value}; expected a whole number of tokens")
    return int(value)
