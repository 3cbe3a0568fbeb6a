"""Versions of engines and generations of hardware, as ranges that a table can name.

Both are read as tuples of numbers: "0.8.5" is (0, 8, 5), compute capability "8.9" is (8, 9), AMD's gfx942 is (942,).
"""

import re
from dataclasses import dataclass
from typing import Self

Version = tuple[int, ...]


def version(text: str | None) -> Version | None:
    """Read a version such as 0.8.5, v0.19.0 or 1.2.0rc6 by its leading numbers; None where there is none."""
    match = re.match(r"v?([0-9]+(?:[.][0-9]+)*)", text or "")
    return tuple(map(int, match[1].split("."))) if match else None


def of_image(image: str | None) -> Version | None:
    """Read the version from the tag of an image, such as vllm/vllm-openai:v0.19.0-cu130; None where the tag has none."""
    name = (image or "").split("@")[0].rsplit("/", 1)[-1]
    found = version(name.split(":", 1)[1]) if ":" in name else None
    return found if found is not None and len(found) >= 2 else None


def capability(text: str | None) -> Version | None:
    """Read a generation: 9.0 of NVIDIA, gfx942 of AMD; None where it is not known."""
    if text is None:
        return None
    match = re.fullmatch(r"gfx([0-9]+)[0-9a-f]*", text)
    return (int(match[1]),) if match else version(text)


@dataclass(frozen=True, slots=True)
class Range:
    """At least `low`, below `high`; an open end is None, and an open range holds everything, unknown things too."""

    low: Version | None = None
    high: Version | None = None

    @classmethod
    def of_versions(cls, text: str) -> Self:
        """Read ">=0.32", "<0.9", ">=0.20,<0.32" or nothing. Raises ValueError."""
        low = high = None
        for part in filter(None, text.replace(" ", "").split(",")):
            match = re.fullmatch(r"(>=|<)([0-9.]+)", part)
            if match is None:
                raise ValueError(f"{text!r} is no range of versions; write >=A, <B or both")
            if match[1] == ">=":
                low = version(match[2])
            else:
                high = version(match[2])
        return cls(low, high)

    @classmethod
    def of_capabilities(cls, text: str) -> Self:
        """Read "8.9" (from), "7.5-8.9" (from, below) or nothing."""
        low, _, high = text.partition("-")
        return cls(capability(low) if low else None, capability(high) if high else None)

    def holds(self, value: Version | None) -> bool:
        """Whether a value lies in the range; an unknown one only in the open range."""
        if self.low is None and self.high is None:
            return True
        if value is None:
            return False
        return (self.low is None or _padded(value) >= _padded(self.low)) and (
            self.high is None or _padded(value) < _padded(self.high)
        )


def _padded(value: Version) -> Version:
    return (*value, *(0,) * (4 - len(value)))
