"""Number formats: how many bits one weight, or one cached key or value, really takes.

Scales and zero points are shared by a group, so a format's real width is bits + (scale + zero) / group.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

LOSSLESS_SHARE = 0.87  # of 16-bit weights, served: Unweight (Cloudflare Cf-TR-2026.04.v1), −13 %


@dataclass(frozen=True, slots=True)
class Format:
    """One format; `group` in values, or the words row, tensor, head whose size the model knows."""

    name: str
    bits: float
    group: int | str
    source: str
    scale: float = 0.0
    zero: float = 0.0
    recent: int = 0  # newest tokens of a sequence that stay in 16 bits
    experts_only: bool = False  # of a mixture of experts, other matrices stay in 16 bits

    def width(self, shared: int) -> float:
        """Bits of one value; `shared` is the size of a row or of a head, whichever the format speaks of."""
        if self.group == "tensor":
            return self.bits
        group = shared if isinstance(self.group, str) else self.group
        return self.bits + (self.scale + self.zero) / group


def read(text: str) -> tuple[dict[str, Format], dict[str, Format]]:
    """Read the formats of weights and of the KV cache; raises TypeError for a figure that formats do not have."""
    tables: Mapping[str, Mapping[str, dict[str, Any]]] = tomllib.loads(text)
    made = {part: {name: Format(name=name, **row) for name, row in rows.items()} for part, rows in tables.items()}
    return made["weights"], made["kv"]


WEIGHTS, KV = read((resources.files(__package__) / "formats.toml").read_text(encoding="utf-8"))
