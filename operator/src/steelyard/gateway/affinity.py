"""Which replica holds the KV of a prompt's beginning: one interface, whatever the knowledge comes from.

`PrefixTable` knows what this gateway sent where. A prompt is cut into blocks of `BLOCK` bytes, and each block's key covers
everything before it; the replica that computed a block last is remembered, and the longest known beginning wins. It is a guess
about the engines' caches: a wrong one costs a prefill that would have been needed anyway. What engines say of themselves (their
KV events) is about tokens, which a gateway without a tokenizer cannot compare; whoever brings one puts it behind `Prefixes`.
"""

from collections import OrderedDict
from collections.abc import Container
from typing import NamedTuple, Protocol

BLOCK = 1024  # bytes
MAX_BLOCKS = 64
CAPACITY = 65_536  # blocks remembered


class Beginning(NamedTuple):
    """What is known of one prompt: the replica that holds its beginning, and how many bytes; `keys` are the index's own."""

    keys: tuple[int, ...] = ()
    replica: str | None = None
    held: int = 0


NOTHING = Beginning()


class Prefixes(Protocol):
    """An index of who holds which beginnings."""

    def find(self, prompt: bytes, there: Container[str], model: str = "") -> Beginning:
        """The longest beginning of a prompt to `model` that some replica of `there` holds: adapters share none."""

    def sent(self, beginning: Beginning, replica: str) -> None:
        """A replica computes the prompt that `find` gave this for."""


class NoPrefixes:
    """Of a service that wants no affinity: nobody holds anything."""

    def find(self, prompt: bytes, there: Container[str], model: str = "") -> Beginning:
        """Nothing."""
        return NOTHING

    def sent(self, beginning: Beginning, replica: str) -> None:
        """Nothing to remember."""


class PrefixTable:
    """Beginnings of prompts by where they were computed; those used least recently are forgotten."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._where: OrderedDict[int, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._where)

    def find(self, prompt: bytes, there: Container[str], model: str = "") -> Beginning:
        """The longest beginning known that a replica which is there holds; one that has left took its cache along."""
        keys = _keys(prompt, model)
        for count in range(len(keys), 0, -1):
            replica = self._where.get(keys[count - 1])
            if replica is not None and replica in there:
                return Beginning(keys, replica, count * BLOCK)
        return Beginning(keys)

    def sent(self, beginning: Beginning, replica: str) -> None:
        """Remember that `replica` computes these blocks now."""
        for key in beginning.keys:
            self._where[key] = replica
            self._where.move_to_end(key)
        while len(self._where) > self._capacity:
            self._where.popitem(last=False)


def index(affinity: str) -> Prefixes:
    """The index for a value of `routing.affinity`; ValueError names one that there is none for."""
    if affinity == "prefix":
        return PrefixTable()
    if affinity == "none":
        return NoPrefixes()
    raise ValueError(f"affinity {affinity!r}: there are prefix and none")


def _keys(prompt: bytes, model: str) -> tuple[int, ...]:
    """The chained keys of a prompt's whole blocks, at most `MAX_BLOCKS`; the chain begins with the model's name."""
    keys: list[int] = []
    before = hash(model)
    for start in range(0, min(len(prompt) // BLOCK, MAX_BLOCKS) * BLOCK, BLOCK):
        before = hash((before, prompt[start : start + BLOCK]))
        keys.append(before)
    return tuple(keys)
