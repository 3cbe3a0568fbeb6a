"""The cheapest fixed size of all, as somebody finds it who may play a load as often as he likes."""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import NamedTuple


class Size(NamedTuple):
    """Replicas of each role that never change."""

    prefill: int
    decode: int

    @property
    def policy(self) -> str:
        """As `steelyard simulate` writes it."""
        return f"static={self.prefill}:{self.decode}"


def cheapest(attained: Callable[[Size], float], wanted: float, least: Size, most: Size) -> Size | None:
    """The fewest replicas, from `least` to `most`, that attain what is wanted: the fewest for decode with which the most for
    prefill do, and the fewest for prefill with these, by bisection; then one more for decode as long as that saves two for
    prefill. None where `most` is not enough.

    More of either role must never attain less.
    """

    def fewest(low: int, enough: int, size: Callable[[int], Size]) -> int:
        tried = range(low, enough)
        return low + bisect_left(tried, True, key=lambda number: attained(size(number)) >= wanted)

    if attained(most) < wanted:
        return None
    best = Size(most.prefill, fewest(least.decode, most.decode, partial(Size, most.prefill)))
    while True:
        best = Size(fewest(least.prefill, best.prefill, partial(Size, decode=best.decode)), best.decode)
        saving = Size(best.prefill - 2, best.decode + 1)
        if saving.prefill < least.prefill or saving.decode > most.decode or attained(saving) < wanted:
            return best
        best = saving
