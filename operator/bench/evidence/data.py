"""The traces and golden tables beside this module, read."""

import csv
import gzip
from collections.abc import Iterable
from pathlib import Path
from random import Random

from steelyard.sim import synthetic, trace
from steelyard.sim.requests import Arrival

HERE = Path(__file__).with_name("data")


def azure_code(speed: float = 10.0) -> list[Arrival]:
    """Azure's 2023 code completion trace: 8,819 requests in 3,436 s; long prompts, short answers, bursts."""
    return list(trace.read(HERE / "azure-2023-code.csv.gz", speed=speed))


def azure_conversation(speed: float = 10.0) -> list[Arrival]:
    """Azure's 2023 conversation trace: 19,366 requests in 3,502 s; smooth."""
    return list(trace.read(HERE / "azure-2023-conv.csv.gz", speed=speed))


def mooncake(speed: float = 8.0) -> list[Arrival]:
    """Mooncake's conversation trace: 12,031 requests in 3,537 s; very long prompts, shared cache marked."""
    return list(trace.read(HERE / "mooncake-conversation.csv.gz", speed=speed))


def servegen_r1(slice_: str = "") -> list[Arrival]:
    """ServeGen's deepseek-r1 clients, hours 4–10 in a quarter of an hour: long answers. Other slices: `4-10-other` (another
    draw of the same hours), `10-16` and `16-22`."""
    return list(trace.read(HERE / f"servegen-r1{slice_ and '-'}{slice_}.csv.gz"))


def azure_2024_code_day(seed: int = 0) -> list[Arrival]:
    """One day of Azure's 2024 code rates in an hour, lengths of the 2023 code trace, bursty (CV 2)."""
    lengths = [(a.prompt, a.answer) for a in azure_code(1.0)]
    rates = trace.rates(HERE / "azure-2024-code-rate.csv.gz")
    return list(
        synthetic.following(rates, lengths, cv=2.0, speed=24, scale=0.35, start=6 * 3600, end=30 * 3600, seed=seed)
    )


def subsample(arrivals: Iterable[Arrival], seed: int, share: float = 0.95) -> list[Arrival]:
    """Another draw of a trace: each request stays with probability `share`; seed 0 is the trace itself."""
    random = Random(f"subsample {seed}")
    return [a for a in arrivals if seed == 0 or random.random() < share]


def table(name: str) -> list[dict[str, str]]:
    """A table of measured or golden figures."""
    path = HERE / name
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))
