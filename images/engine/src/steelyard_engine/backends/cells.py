"""The cells of llama.cpp's cache, always filled in order, so that attention adds up every sequence the same way.

llama.cpp puts new tokens into freed cells anywhere, and a sum in another order rounds otherwise: enough to change a
greedy answer. Here freed cells are therefore buried, not freed: a graveyard sequence keeps them until all living sequences
are copied out, the cache is cleared, and they come back densely, shared prefixes shared again.

Every token that is computed passes all filled cells, whosever they are, at about 0.4 µs each (SmolLM2): with 14,000 cells of
others it takes twice as long. So a copy is made as soon as the dead and the idle have cost as much as it will, which is at most
twice what is possible; and sequences that are idle then, prefixes kept for reuse above all, stay outside as bytes until
somebody needs them, up to a limit.
"""

import ctypes
from collections.abc import Collection

import llama_cpp
import numpy as np
from numpy.typing import NDArray

_MOVE_COST = 50  # a token is moved in about 20 µs, 50 times what a cell that nobody needs costs each computed token


class CacheLost(Exception):
    """Sequences that were moved cannot be put back; the process has to end."""


class Cells:
    """Sequence numbers 0 to `slots` − 1 are the callers'; two more are used inside. Capacity and lengths in tokens."""

    def __init__(self, context: "llama_cpp.llama_context_p", slots: int, outside: int) -> None:
        """`outside` bounds the tokens whose state may be kept outside of the cache."""
        self._context = context
        self._limit = outside
        self._memory = llama_cpp.llama_get_memory(context)
        self._capacity = int(llama_cpp.llama_n_ctx(context))
        self._spare, self._graveyard = slots, slots + 1
        self._length = [0] * slots
        self._parent: dict[int, tuple[int, int]] = {}  # slot -> the slot that its first so many tokens are shared with
        self._filled = 0
        self._step = 0
        self._used = [0] * slots  # the step in which a slot took part last
        self._shifts: list[
            tuple[int, int, int]
        ] = []  # slot, start and end of what is to be dropped before the next batch
        self._outside: dict[int, tuple[int, bytes]] = {}  # slot -> tokens and their state
        self._carried = 0  # cells that nobody needed, summed over the tokens computed since the last move
        self.moves = 0

    def clear(self) -> None:
        """Forget everything."""
        llama_cpp.llama_memory_clear(self._memory, False)
        self._filled = 0

    def share(self, source: int, slot: int, tokens: int) -> None:
        """Let an empty `slot` hold the first `tokens` tokens of `source` too; raise CacheLost where that went wrong."""
        self._used[slot] = self._step
        if source in self._outside:
            self._copy_in(source, slot, tokens)
            return
        self._borrow(source, slot, 0, tokens)
        self._length[slot] = tokens
        self._parent[slot] = (source, tokens)

    def prepare(self, slots: Collection[int], tokens: int) -> None:
        """Make ready for a batch of `tokens` tokens in these slots; raise CacheLost where that went wrong."""
        self._step += 1
        for slot in slots:
            self._used[slot] = self._step
        for slot in slots:
            if slot in self._outside:
                self._copy_in(slot, slot, self._outside[slot][0])
        living = self._living()
        self._carried += (self._filled - living + sum(self._length[slot] for slot in self._leavers())) * tokens
        if self._carried > _MOVE_COST * living:
            self._move()
        self.reserve(tokens)
        for slot, start, end in self._shifts:
            self._borrow(slot, self._graveyard, start, end)
            llama_cpp.llama_memory_seq_rm(self._memory, slot, start, end)
            llama_cpp.llama_memory_seq_add(self._memory, slot, end, -1, start - end)
            self._length[slot] -= end - start
        self._shifts.clear()

    def reserve(self, tokens: int) -> None:
        """Make sure that so many cells are free at the end of the cache; raise CacheLost where that went wrong."""
        if self._filled + tokens > self._capacity:
            self._move()

    def added(self, slot: int, tokens: int) -> None:
        """Note that a batch has put so many tokens into `slot`."""
        self._length[slot] += tokens
        self._filled += tokens

    def cut(self, slot: int, tokens: int) -> None:
        """Keep only the first `tokens` tokens of a slot, of which no other shares more."""
        if slot in self._outside:
            self._copy_in(slot, slot, self._outside[slot][0])
        if self._length[slot] > tokens:
            self._borrow(slot, self._graveyard, tokens, self._length[slot])
            llama_cpp.llama_memory_seq_rm(self._memory, slot, tokens, -1)
            self._length[slot] = tokens

    def shift(self, slot: int, start: int, end: int) -> None:
        """Drop the tokens from `start` to `end` of a slot that shares nothing, and move those behind them up.

        llama.cpp turns the keys with the next batch, so it is done just before that: no state can be read in between.
        """
        self._shifts.append((slot, start, end))

    def bury(self, slot: int) -> None:
        """Empty a slot; what it was to drop before the next batch goes with it."""
        self._shifts = [shift for shift in self._shifts if shift[0] != slot]
        self._outside.pop(slot, None)
        if self._length[slot]:
            self._borrow(slot, self._graveyard, 0, self._length[slot])
            llama_cpp.llama_memory_seq_rm(self._memory, slot, -1, -1)
            self._length[slot] = 0
        self._adopt(slot)

    def export(self, slot: int, start: int, end: int) -> bytes:
        """Return keys and values of the tokens from `start` to `end`."""
        if start == end:
            return b""
        if slot in self._outside:
            self._copy_in(slot, slot, self._outside[slot][0])
        self._borrow(slot, self._spare, start, end)
        size = llama_cpp.llama_state_seq_get_size(self._context, self._spare)
        state = np.empty(size, np.uint8)
        written = llama_cpp.llama_state_seq_get_data(self._context, _pointer(state), size, self._spare)
        llama_cpp.llama_memory_seq_rm(self._memory, self._spare, -1, -1)
        return state[:written].tobytes()

    def load(self, slot: int, start: int, end: int, state: bytes | memoryview) -> bool:
        """Put exported tokens into `slot`, which ends at `start`; False where the bytes are not of these tokens."""
        if start == end:
            return True
        data = np.frombuffer(state, np.uint8)
        done = llama_cpp.llama_state_seq_set_data(self._context, _pointer(data), len(data), self._spare)
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, self._spare)
        last = llama_cpp.llama_memory_seq_pos_max(self._memory, self._spare)
        if not done or (first, last) != (start, end - 1):
            self._filled += max(0, last - first + 1) if last >= 0 else 0
            self._borrow(self._spare, self._graveyard, -1, -1)
            llama_cpp.llama_memory_seq_rm(self._memory, self._spare, -1, -1)
            return False
        self._borrow(self._spare, slot, start, end)
        llama_cpp.llama_memory_seq_rm(self._memory, self._spare, -1, -1)
        self.added(slot, end - start)
        self._used[slot] = self._step
        return True

    def _move(self) -> None:
        """Copy the living out, clear, and put the busy back, each after the one whose prefix it shares."""
        self.moves += 1
        self._carried = 0
        for slot in self._leavers():
            length = self._length[slot]
            state = self.export(slot, 0, length)
            self.bury(slot)
            self._outside[slot] = (length, state)
        living = [slot for slot, length in enumerate(self._length) if length]
        living.sort(key=self._depth)
        parents = [self._parent.get(slot, (slot, 0)) for slot in living]
        lengths = [self._length[slot] for slot in living]
        states = [
            self.export(slot, shared, length)
            for slot, (_, shared), length in zip(living, parents, lengths, strict=True)
        ]
        used = list(self._used)
        self.clear()
        for slot, (parent, shared), length in zip(living, parents, lengths, strict=True):
            if shared:
                self._borrow(parent, slot, 0, shared)
            self._length[slot] = shared
            if not self.load(slot, shared, length, states.pop(0)):
                raise CacheLost(f"{length - shared} tokens could not be put back")
        self._used = used

    def _copy_in(self, source: int, slot: int, tokens: int) -> None:
        """Put the first `tokens` tokens of a sequence that is outside into `slot`; it stays outside unless it is that slot."""
        length, state = self._outside[source]
        self.reserve(length)
        if source == slot:
            del self._outside[source]
        if not self.load(slot, 0, length, state):
            raise CacheLost(f"{length} tokens could not be brought back")
        self.cut(slot, tokens)

    def _living(self) -> int:
        """Cells that somebody needs, shared ones counted once."""
        return sum(self._length) - sum(shared for _, shared in self._parent.values())

    def _leavers(self) -> list[int]:
        """Slots that a move takes out: they took no part in the last step, and there is room outside, the latest used first."""
        room = self._limit - sum(tokens for tokens, _ in self._outside.values())
        idle = [slot for slot, length in enumerate(self._length) if length and self._used[slot] < self._step]
        found = []
        for slot in sorted(idle, key=lambda slot: -self._used[slot]):
            if self._length[slot] <= room:
                found.append(slot)
                room -= self._length[slot]
        return found

    def _depth(self, slot: int) -> int:
        return 1 + self._depth(self._parent[slot][0]) if slot in self._parent else 0

    def _adopt(self, slot: int) -> None:
        """Give the children of an emptied slot to the one of them that shares most, and that one to its grandparent."""
        grandparent = self._parent.pop(slot, None)
        children = [child for child, (parent, _) in self._parent.items() if parent == slot]
        if not children:
            return
        heir = max(children, key=lambda child: self._parent[child][1])
        own = self._parent.pop(heir)[1]
        if grandparent is not None:
            self._parent[heir] = (grandparent[0], min(own, grandparent[1]))
        for child in children:
            if child != heir:
                self._parent[child] = (heir, self._parent[child][1])

    def _borrow(self, source: int, slot: int, start: int, end: int) -> None:
        llama_cpp.llama_memory_seq_cp(self._memory, source, slot, start, end)


def _pointer(data: NDArray[np.uint8]) -> "ctypes._Pointer[ctypes.c_uint8]":
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
