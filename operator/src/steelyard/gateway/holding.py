"""How many bytes of requests this process holds, bounded: a crowd of large ones must not have it killed for want of memory.

A body is held while it arrives and while its request waits for its answer to begin (about twice then: as a whole, and its
prompt). Small ones are always taken: as many as there may be requests and connections fit. The bounds leave half of the
memory limit that the operator gives a gateway, 512 MiB, for everything else.
"""

from steelyard.gateway.errors import ClientError

SMALL = 64 * 1024  # bytes of a body
MOST_ARRIVING = 64 * 1024 * 1024  # bytes of all bodies
MOST_WAITING = 96 * 1024 * 1024


class Holding:
    """Bytes of bodies: `arriving` on connections or not looked at yet, `waiting` in requests whose answer has not begun."""

    __slots__ = ("arriving", "waiting")

    def __init__(self) -> None:
        self.arriving = self.waiting = 0

    def check_arriving(self, size: int) -> None:
        """Raise ClientError (429) where a body that has come to `size` bytes is too much."""
        if size > SMALL and self.arriving > MOST_ARRIVING:
            raise _too_much("arrive")

    def check_waiting(self, size: int) -> None:
        """Raise ClientError (429) where a further body of `size` bytes would be too much."""
        if size > SMALL and self.waiting + size > MOST_WAITING:
            raise _too_much("wait")


def _too_much(do: str) -> ClientError:
    return ClientError(
        429, f"too many requests of more than {SMALL} bytes {do} at once; try again later", retry_after=1
    )
