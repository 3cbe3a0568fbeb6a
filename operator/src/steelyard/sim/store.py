"""What a replica holds: prompts and sequences, where each is, and the KV that all of them have reserved.

KV is accounted in tokens. `kv` counts everything reserved here: running sequences, prompts in a pass, contexts on their way
in, and finished prompts that decode has not fetched yet. Law: 0 <= kv <= the engine's capacity, always. When it is full, the
newest sequence is preempted and recomputed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappush
from typing import TYPE_CHECKING, Any, Protocol

from steelyard.sim.engine import Batching, Engine
from steelyard.sim.prefix import PrefixCache
from steelyard.sim.requests import Request
from steelyard.sim.stretch import Stretch

if TYPE_CHECKING:
    from steelyard.sim.replica import Replica


class Host(Protocol):
    """What a replica tells the world around it."""

    def at(self, when: float, handler: Callable[..., None], *arguments: Any) -> None:
        """Have `handler(when, *arguments)` called at that time."""

    def prefilled(self, request: Request, now: float) -> None:
        """A prompt is computed; its KV is kept where it is until `release`."""

    def answered(self, request: Request, now: float) -> None:
        """A request that decodes where it was prefilled has its first token."""

    def completed(self, request: Request, now: float) -> None:
        """The last token of an answer is made."""

    def passed(self, replica: Replica, now: float) -> None:
        """A pass or stretch is over: queues may send more before the next one begins."""


class Store:
    """State and memory of one replica; `replica.py` adds what it does with its time."""

    def __init__(self, name: str, role: str, engine: Engine, host: Host, cache: PrefixCache | None = None) -> None:
        self.name, self.role, self.engine, self.host, self.cache = name, role, engine, host, cache
        self.waiting: deque[Request] = deque()  # prompts, the first perhaps partly computed
        self.incoming: deque[Request] = deque()  # sequences for which there is no room yet
        self.landing: dict[int, Request] = {}  # sequences whose KV is on its way
        self.landed: list[Request] = []  # sequences that join at the next step
        self.held: dict[int, Request] = {}  # finished prompts whose KV is not fetched yet
        self.running = 0
        self.kv = 0
        self.outstanding = 0  # prompt tokens taken and not computed
        self.preemptions = 0
        self.prefills = (0, 0, 0.0)  # prompts computed, their uncached tokens, their seconds in passes
        self._heap: list[tuple[int, int, Request]] = []  # running, by the step of their last token
        self._fresh: list[Request] = []  # running, without a first token yet
        self._active = 0  # KV tokens of running sequences
        self._generated = 0
        self._token_seconds = 0.0  # sum over generated tokens of the step that each took
        self._busy_seconds = 0.0
        self._step = 0
        self._serial = 0
        self._stretch: Stretch | None = None
        self._pass: tuple[list[Request], int, bool] | None = (
            None  # prompts it finishes, tokens, whether decode advances
        )
        self._ending = False  # a pass is being accounted for: nothing begins meanwhile
        self._leaving = False  # clients of some that are in a pass or a step have left
        self._since = 0.0
        self._version = 0
        self._gated = engine.batching in (Batching.STATIC, Batching.DYNAMIC)
        self._gate = 0  # how many more may join the batch that is being formed
        self._waited_from: float | None = None

    def kick(self, now: float) -> None:
        """Something new is here."""
        raise NotImplementedError

    def idle(self) -> bool:
        """Whether nothing at all is left here."""
        raise NotImplementedError

    def emptied(self, now: float) -> None:
        """Nothing is left here, perhaps the last of what a draining replica had."""
        raise NotImplementedError

    def release(self, request: Request, now: float) -> None:
        """Decode has fetched the KV of a finished prompt, or nobody will."""
        request.held_by = None
        if self.held.pop(request.key, None) is None:
            return
        self.kv -= request.context
        if self.waiting or self.incoming:
            self.host.at(now, self.kick)
        elif self.idle():
            self.host.at(now, self.emptied)

    def cancel(self, request: Request) -> None:
        """Forget a sequence that has not joined yet: its source died."""
        if request in self.incoming:
            self.incoming.remove(request)
        elif self.landing.pop(request.key, None) is not None:
            self.kv -= request.context

    def _fits(self, request: Request) -> bool:
        """Whether a sequence has room here, with what is under way and its own first token."""
        growth = self.running + 1
        if self._stretch is not None:
            growth += self._stretch.steps * self.running
        elif self._pass is not None and self._pass[2]:
            growth += self.running
        taken = self.running + len(self.landing) + len(self.landed)
        return taken < self.engine.max_sequences and self.kv + growth + request.context <= self.engine.kv_tokens

    def _take(self, request: Request, now: float) -> None:
        """Reserve a sequence's KV here and fetch it."""
        self.kv += request.context
        seconds = self.engine.transfer_seconds(request.context) if request.held_by is not None else 0.0
        if seconds > 0:
            self.landing[request.key] = request
            self.host.at(now + seconds, self._land, request)
        else:
            self._fetched(request, now)

    def _land(self, now: float, request: Request) -> None:
        if self.landing.pop(request.key, None) is not None:  # else the replica died meanwhile
            self._fetched(request, now)
            self.kick(now)

    def _fetched(self, request: Request, now: float) -> None:
        if request.held_by is not None:
            request.held_by.release(request, now)
        self.landed.append(request)

    def _reserve(self, request: Request) -> bool:
        """Reserve a prompt's KV, leaving room for a step of those that run; find what the cache already has of it."""
        if self.kv + request.context + self.running + 1 > self.engine.kv_tokens:
            return False
        self.kv += request.context
        request.reserved = True
        if self.cache is not None and request.blocks and not request.produced:
            left = max(1, request.prompt - self.cache.hit(request.blocks))
            self.outstanding += left - request.left
            request.left = request.tokens = left
        return True

    def _join(self, request: Request) -> None:
        self.running += 1
        self._serial += 1
        self._active += request.context
        heappush(self._heap, (self._step + request.answer - request.produced, self._serial, request))
        if request.first is None:
            self._fresh.append(request)

    def _forget(self) -> None:
        """Take out the running sequences whose clients have left."""
        self._leaving = False
        for entry in [entry for entry in self._heap if entry[2].gone]:
            self._take_out(entry)

    def _take_out(self, entry: tuple[int, int, Request]) -> int:
        """Take a running sequence out, and free its KV. Return the tokens that it has made here."""
        self._heap.remove(entry)
        heapify(self._heap)
        finish, _, request = entry
        made = request.answer - request.produced - (finish - self._step)
        self.running -= 1
        self.kv -= request.context + made
        self._active -= request.context + made
        if request in self._fresh:
            self._fresh.remove(request)
        return made

    def _preempt(self) -> None:
        """Take the newest sequence out: its KV is freed, and it is computed again here when there is room."""
        newest = max(self._heap, key=lambda entry: entry[1])
        request, made = newest[2], self._take_out(newest)
        request.context += made
        request.produced += made
        request.left, request.local = request.context, True
        self.waiting.appendleft(request)
        self.outstanding += request.left
        self.preemptions += 1
        self._gate += self._gated
