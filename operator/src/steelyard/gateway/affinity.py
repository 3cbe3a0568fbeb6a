"""Which replica holds the KV of a prompt's beginning, as far as this gateway sent it there.

A prompt is cut into blocks of `BLOCK` bytes, and each block's key covers everything before it. The table remembers the
replica that computed each block last; the longest known beginning wins. It is a guess about the engines' caches: a wrong
one costs a prefill that would have been needed anyway.
"""

from collections import OrderedDict

BLOCK = 1024  # bytes
MAX_BLOCKS = 64
CAPACITY = 65_536  # blocks remembered


class PrefixTable:
    """Least recently used beginnings of prompts and where they were computed."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._where: OrderedDict[int, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._where)

    def find(self, blocks: list[int]) -> tuple[str | None, int]:
        """Return (replica, bytes of the prompt it holds) for the longest beginning known, or (None, 0)."""
        for count in range(len(blocks), 0, -1):
            replica = self._where.get(blocks[count - 1])
            if replica is not None:
                return replica, count * BLOCK
        return None, 0

    def note(self, blocks: list[int], replica: str) -> None:
        """Remember that `replica` computes these blocks now."""
        for block in blocks:
            self._where[block] = replica
            self._where.move_to_end(block)
        while len(self._where) > self._capacity:
            self._where.popitem(last=False)


def prompt_blocks(prompt: bytes) -> list[int]:
    """Return the chained keys of a prompt's whole blocks, at most `MAX_BLOCKS`."""
    keys: list[int] = []
    before = 0
    for start in range(0, min(len(prompt) // BLOCK, MAX_BLOCKS) * BLOCK, BLOCK):
        before = hash((before, prompt[start : start + BLOCK]))
        keys.append(before)
    return keys
