"""ServeGen's clients: a folder of `chunk-i-trace.csv` (rate, CV and arrival family per ten minutes) and
`chunk-i-dataset.json` (distributions of tokens), as published by Alibaba for production workloads.

Each client is a renewal process of its own with Gamma inter-arrivals; lengths are drawn from its distributions of that time.
"""

import ast
import csv
import json
from collections.abc import Iterator
from heapq import merge
from math import isfinite
from pathlib import Path
from random import Random

from steelyard.sim.requests import Arrival
from steelyard.sim.trace import BadTrace, opened

WINDOW_SECONDS = 600.0
_SHAPES = (0.02, 50.0)  # of a Gamma: beyond these, rounding in the published CV rules

Distribution = tuple[list[int], list[float]]


def read(
    folder: Path, *, start: float, end: float, speed: float = 1.0, scale: float = 1.0, seed: int = 0
) -> Iterator[Arrival]:
    """All clients of a folder within [start, end) of the trace's seconds, played `speed` times as fast.

    The rate per second of the *simulated* clock stays what it was: a faster clock shortens the day, not the gaps.
    """
    files = sorted(folder.glob("chunk-*-trace.csv"))
    if not files:
        raise BadTrace(f"{folder}: no chunk-*-trace.csv in it")
    return merge(*(_client(path, start, end, speed, scale, seed) for path in files))


def _client(path: Path, start: float, end: float, speed: float, scale: float, seed: int) -> Iterator[Arrival]:
    lengths = _lengths(path.with_name(path.name.replace("-trace.csv", "-dataset.json")))
    if not lengths:
        return
    random = Random(f"{path.name} {seed}")
    for at, published, cv in _rates(path):
        rate = published * scale
        if not start <= at < end or rate <= 0:
            continue
        known = [begin for begin in lengths if begin <= at]
        prompts, answers = lengths[known[-1] if known else min(lengths)]
        shape = min(_SHAPES[1], max(_SHAPES[0], 1 / cv**2))
        now, over = (at - start) / speed + random.random() / rate, (at - start + WINDOW_SECONDS) / speed
        while now < over:
            prompt, answer = random.choices(*prompts)[0], random.choices(*answers)[0]
            yield Arrival(now, max(1, prompt), max(1, answer))
            now += random.gammavariate(shape, 1 / (rate * shape))


def _rates(path: Path) -> Iterator[tuple[float, float, float]]:
    """Seconds, requests per second and CV of each line."""
    with opened(path) as file:
        for number, row in enumerate(csv.reader(file), start=1):
            try:
                found = float(row[0]), float(row[1] or 0), abs(float(row[2] or 1)) or 1.0
            except (IndexError, ValueError) as failure:
                told = f"{path}: line {number} is {','.join(row)[:60]!r}; expected seconds, requests per second and their CV"
                raise BadTrace(told) from failure
            if not all(map(isfinite, found)):
                raise BadTrace(f"{path}: line {number} is {','.join(row)[:60]!r}; expected finite numbers")
            yield found


def _lengths(path: Path) -> dict[float, tuple[Distribution, Distribution]]:
    """Distributions (prompt, answer) by the time from which they hold, rising."""
    found: dict[float, tuple[Distribution, Distribution]] = {}
    try:
        with opened(path) as file:
            windows = sorted(
                ((float(begin), dict(tables)) for begin, tables in json.load(file).items()), key=lambda one: one[0]
            )
    except (AttributeError, TypeError, ValueError) as failure:
        raise BadTrace(f"{path}: expected a JSON object of {{seconds: distributions}}: {failure}") from failure
    for begin, tables in windows:
        prompts, answers = (_distribution(path, tables.get(name)) for name in ("input_tokens", "output_tokens"))
        if prompts is not None and answers is not None:
            found[begin] = (prompts, answers)
    return found


def _distribution(path: Path, text: object) -> Distribution | None:
    """Read `"{4: 0.5, 9: 0.5}"`: tokens and their weights; None where it is empty."""
    try:
        table = ast.literal_eval(text) if isinstance(text, str) else text
    except (SyntaxError, ValueError) as failure:
        raise BadTrace(f"{path}: a distribution is {str(text)[:60]!r}; expected {{tokens: weight, …}}") from failure
    if not isinstance(table, dict) or not table:
        return None
    try:
        tokens, weights = [int(key) for key in table], [float(weight) for weight in table.values()]
    except (TypeError, ValueError) as failure:
        raise BadTrace(f"{path}: a distribution is {str(text)[:60]!r}; expected {{tokens: weight, …}}") from failure
    if not all(isfinite(weight) and weight >= 0 for weight in weights) or sum(weights) <= 0:
        raise BadTrace(f"{path}: weights of a distribution are {str(weights)[:60]}; expected some above 0")
    return tokens, weights
