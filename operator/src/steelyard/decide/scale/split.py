"""Layer 1: which of the ready replicas decode. Decode first, no windows, no cool-down.

A decode replica past R sequences breaks TPOT for all of them; prefill short of capacity loses only the excess, because
the gateway's queue puts those last that are late anyway. So decode's need comes first and prefill gets the rest. A
margin before decode shrinks replaces a cool-down, which would block its growth.
"""

from collections.abc import Callable
from math import ceil

FILL = 0.8  # h: decode replicas are filled to this share of R while prefill can spare it
FILL_TIGHT = 0.95  # … and to this where it cannot
MARGIN = 0.5  # replicas: decode shrinks only to where it would fit with this to spare


def decode_share(need: float, current: int, ready: int, bounds: tuple[int, int], enough: Callable[[int], bool]) -> int:
    """Choose how many of `ready` interchangeable replicas decode.

    `need` in replicas at full use, `current` how many decode now, `bounds` the least and the most of them, `enough(p)`
    whether p prefill replicas meet their objective.
    """
    least, most = bounds
    fill = FILL if enough(ready - min(max(_whole(need / FILL), least), most)) else FILL_TIGHT
    wanted = _whole(need / fill)
    if wanted < current:
        wanted = min(current, max(wanted, _whole(need / fill + MARGIN)))
    return min(max(wanted, least), most)


def _whole(replicas: float) -> int:
    return ceil(replicas - 1e-9)
