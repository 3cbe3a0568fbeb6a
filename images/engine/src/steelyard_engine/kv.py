"""Accounting of the KV cache: which sequence holds which block, and what may be evicted. Pure, no model.

The one idea is that of a paged cache: capacity is counted in blocks of `BLOCK` tokens, a block may be held by several
owners (a shared prefix), and an owner is either *hard* (running, or waiting to be fetched by a decode pod) or *soft*
(finished, kept as a reusable prefix). Soft owners are evicted whole, least recently used first, whenever a hard one
needs room. A full block is known by a digest over all tokens up to its end, so equal digests mean equal KV, and a
client cannot forge a collision that would show it another client's cache.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

BLOCK = 16  # tokens of one block, as in vLLM


def blocks_for(tokens: int) -> int:
    """Return how many blocks hold `tokens` tokens."""
    return -(-tokens // BLOCK)


def extend_keys(keys: list[bytes], tokens: Sequence[int], seed: bytes = b"") -> None:
    """Append to `keys` the chained digests of the full blocks of `tokens` that it lacks; the chain begins with `seed`."""
    for start in range(len(keys) * BLOCK, len(tokens) - BLOCK + 1, BLOCK):
        block = array("q", tokens[start : start + BLOCK]).tobytes()
        keys.append(blake2b((keys[-1] if keys else seed) + block, digest_size=16).digest())


class KvPool:
    """Blocks, their owners, and the digests under which full blocks can be found again.

    Invariants (property-tested): every block is free or has at least one owner; `free + held == total`; a block with a
    hard owner is never evicted.
    """

    def __init__(self, tokens: int, soft_tokens: int | None = None) -> None:
        """Make a pool of `tokens`; at most `soft_tokens` of them (None: all) are kept by soft owners alone."""
        self.total = tokens // BLOCK
        self._soft_limit = self.total if soft_tokens is None else soft_tokens // BLOCK
        self._free = list(range(self.total - 1, -1, -1))
        self._owners: dict[int, dict[int, None]] = {}  # block -> owners, oldest first
        self._blocks: dict[int, list[int]] = {}  # owner -> its blocks in order
        self._soft: OrderedDict[int, None] = OrderedDict()  # evictable owners, least recently used first
        self._hard: dict[int, int] = {}  # block -> number of hard owners, where not 0
        self._block_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    @property
    def used(self) -> int:
        """Blocks that a running or held sequence needs; reusable prefixes count as free, as in vLLM."""
        return len(self._hard)

    @property
    def available(self) -> int:
        """Blocks that an allocation could get now, by eviction where needed."""
        return self.total - len(self._hard)

    @property
    def soft_owners(self) -> list[int]:
        """Owners that may be evicted, least recently used first."""
        return list(self._soft)

    def blocks(self, owner: int) -> list[int]:
        """Return the ids of the blocks of `owner`, in the order of its tokens."""
        return list(self._blocks.get(owner, ()))

    def match(self, keys: Sequence[bytes]) -> tuple[int, int | None]:
        """Find the longest known prefix of `keys`: the number of blocks and an owner that holds them all."""
        count, source = 0, None
        for key in keys:
            block = self._block_of.get(key)
            if block is None:
                break
            count += 1
            source = next(iter(self._owners[block]))
        return count, source

    def fits(self, source: int | None, shared: int, blocks: int, spare: int) -> bool:
        """Say whether an owner of `blocks` blocks, the first `shared` those of `source`, fits and leaves `spare` free."""
        revived = sum(1 for block in self._shared(source, shared) if block not in self._hard)
        return self.available >= blocks - shared + revived + spare

    def admit(self, owner: int, source: int | None, shared: int, blocks: int) -> list[int]:
        """Give a new hard `owner` its blocks, the first `shared` those of `source`; return the owners evicted for it.

        The caller has asked `fits` before. The source becomes the most recently used one.
        """
        if source is not None and source in self._soft:
            self._soft.move_to_end(source)
        for block in self._shared(source, shared):
            self._hold(owner, block)
        self._blocks.setdefault(owner, [])
        return self.grow(owner, blocks)

    def grow(self, owner: int, blocks: int) -> list[int]:
        """Extend `owner` to `blocks` blocks and return the owners evicted for it; the caller checked `available`."""
        evicted = []
        held = self._blocks[owner]
        while len(held) < blocks:
            while not self._free:
                victim = next(iter(self._soft))
                self.release(victim)
                evicted.append(victim)
            self._hold(owner, self._free.pop())
        return evicted

    def register(self, owner: int, index: int, key: bytes) -> None:
        """Make the full block number `index` of `owner` findable under `key`; the first holder of a key stays."""
        block = self._blocks[owner][index]
        if key not in self._block_of and block not in self._key_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def soften(self, owner: int, tokens: int) -> list[int]:
        """Keep the first `tokens` tokens of a hard owner as a reusable prefix; return the owners that this leaves with nothing.

        These are others that had been used longest ago, and the owner itself where nothing of it can be kept.
        """
        for block in self._blocks[owner]:
            self._loosen(block)
        self._soft[owner] = None
        self._trim(owner, blocks_for(tokens))
        gone = []
        if not self._blocks[owner]:
            self.release(owner)
            gone.append(owner)
        while self.total - len(self._free) - len(self._hard) > self._soft_limit:
            victim = next(iter(self._soft))
            self.release(victim)
            gone.append(victim)
        return gone

    def release(self, owner: int) -> None:
        """Take everything from `owner`; unknown owners are ignored."""
        if owner not in self._blocks:
            return
        if owner in self._soft:
            del self._soft[owner]
        else:
            for block in self._blocks[owner]:
                self._loosen(block)
        self._trim(owner, 0)
        del self._blocks[owner]

    def _shared(self, source: int | None, shared: int) -> list[int]:
        return [] if source is None else self._blocks[source][:shared]

    def _hold(self, owner: int, block: int) -> None:
        self._owners.setdefault(block, {})[owner] = None
        self._hard[block] = self._hard.get(block, 0) + 1
        self._blocks.setdefault(owner, []).append(block)

    def _loosen(self, block: int) -> None:
        left = self._hard[block] - 1
        if left:
            self._hard[block] = left
        else:
            del self._hard[block]

    def _trim(self, owner: int, keep: int) -> None:
        held = self._blocks[owner]
        while len(held) > keep:
            block = held.pop()
            owners = self._owners[block]
            del owners[owner]
            if not owners:
                del self._owners[block]
                key = self._key_of.pop(block, None)
                if key is not None:
                    del self._block_of[key]
                self._free.append(block)
