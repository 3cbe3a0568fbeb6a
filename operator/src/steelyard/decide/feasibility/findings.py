"""What a check finds: a field with its value, what is wrong with it, the bound, and the nearest setting that works."""

from collections.abc import Iterable
from dataclasses import dataclass

from steelyard.api.reasons import Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `refused` ones keep the service from being served, others are told with it."""

    reason: Reason
    field: str
    value: str
    problem: str
    refused: bool = True

    def __str__(self) -> str:
        return f"{self.field}: {self.value}: {self.problem}"


def gigabytes(size: float) -> str:
    """Write bytes as people compare them with data sheets: 65.5 GB."""
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def milliseconds(seconds: float) -> str:
    """Write a time as objectives are written: 12.3ms, 1.25s."""
    return f"{seconds * 1000:.3g}ms" if seconds < 1 else f"{seconds:.3g}s"


def listed(values: Iterable[object]) -> str:
    """Write alternatives: 1, 2 or 4."""
    words = [str(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else ""
