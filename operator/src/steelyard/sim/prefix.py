"""A replica's prefix cache: which beginnings of prompts it still has the KV of, least recently used first out."""

from collections import OrderedDict


class PrefixCache:
    """Blocks of `block_tokens`, at most `capacity_tokens` in all. A prompt's block ids each stand for everything before
    them too, so a hit is the longest run of known ids from the start."""

    def __init__(self, capacity_tokens: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.capacity = max(0, capacity_tokens // block_tokens)
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def hit(self, blocks: tuple[int, ...]) -> int:
        """Return the tokens of the longest beginning that is here, and mark it as used."""
        count = 0
        for block in blocks:
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            count += 1
        return count * self.block_tokens

    def insert(self, blocks: tuple[int, ...]) -> None:
        """Keep the blocks of a prompt that was computed."""
        for block in blocks:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self.capacity:
            self._blocks.popitem(last=False)
