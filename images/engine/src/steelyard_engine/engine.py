"""The engine: one thread that turns scheduler and backend, and the bridge between it and the HTTP loop.

Everything that changes the scheduler happens in the worker thread, between two steps; the HTTP loop sends it closures
through an inbox and gets `Delta`s back, all those of a step in one wake-up. So nothing here needs a lock.
"""

import asyncio
import itertools
import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Literal

from .backends import Backend, StateRefused
from .guesses import Guesser, Speculation
from .handoff import Held, Pulled, new_capability, pack_header
from .kv import BLOCK
from .metrics import Gauges, Metrics, Spent
from .sampling import Sampling
from .scheduler import NOTHING, Scheduler
from .steps import Batching, Chunk, Limits, Restore, Sequence, Step, Window
from .text import TextStream

log = logging.getLogger(__name__)

Reason = Literal["stop", "length", "error"]
_IDLE_SECONDS = 0.5  # longest sleep of the worker without work


@dataclass(frozen=True, slots=True)
class Options:
    """How an engine runs: sizes, batching, what to do without a transferred state, seconds that a held state lives."""

    served_name: str
    max_sequences: int
    max_batch_tokens: int
    batching: Batching
    max_wait: float
    recompute: bool
    lease_seconds: float
    adapters: tuple[str, ...] = ()
    speculation: Speculation = "none"
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request: tokens of the prompt, limits, and its part in a hand-off. `arrival` is monotonic seconds."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stops: tuple[str, ...]
    ignore_eos: bool
    hold: bool
    arrival: float
    restored: Pulled | None = None
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Handle:
    """Where a held state can be fetched: its id, KV blocks and number of tokens."""

    id: str
    blocks: list[int]
    tokens: int


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of an answer; the last one has a `reason`. `cached` counts prompt tokens that were not computed here."""

    text: str
    generated: int
    cached: int
    reason: Reason | None = None
    handle: Handle | None = None
    error: str | None = None


@dataclass(slots=True)
class _Active:
    request: Request
    sequence: Sequence
    text: TextStream
    deltas: "asyncio.Queue[Delta]"
    first_token: float | None = None
    last_token: float | None = None


@dataclass(slots=True)
class _Outbox:
    """Deltas of one step, delivered to the HTTP loop together."""

    items: list[tuple["asyncio.Queue[Delta]", Delta]] = field(default_factory=list)

    def deliver(self) -> None:
        for deltas, delta in self.items:
            deltas.put_nowait(delta)


class Engine:
    """Owns the worker thread. `ready` is set after loading and warm-up, `failure` if the worker died."""

    def __init__(self, backend: Backend, options: Options, guesser: Callable[[], Guesser] | None = None) -> None:
        """`guesser` makes what speculates, after the backend is loaded, in the worker; None: nothing does."""
        self.backend = backend
        self.options = options
        self._make_guesser = guesser
        self._guesser: Guesser | None = None
        self.ready = False
        self.failure: BaseException | None = None
        self.pulling = 0  # requests whose transferred state is on its way
        self.held: dict[str, Held] = {}
        limits = Limits(
            options.max_sequences,
            options.max_batch_tokens,
            backend.kv_tokens,
            backend.slots,
            options.batching,
            options.max_wait,
            backend.prefix_tokens,
            options.window,
        )
        self._scheduler = scheduler = Scheduler(limits)
        gauges = Gauges(
            running=lambda: len(scheduler.running),
            waiting=lambda: len(scheduler.waiting) + self.pulling,
            kv_use=lambda: scheduler.kv_use,
            held=lambda: len(self.held),
        )
        self.metrics = Metrics(options.served_name, scheduler.pool.total, BLOCK, gauges)
        self._active: dict[int, _Active] = {}
        self._ids = itertools.count(1)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._outbox = _Outbox()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    @property
    def alive(self) -> bool:
        """Say whether the worker turns."""
        return self._thread.is_alive() and self.failure is None

    @property
    def loading(self) -> bool:
        """Say whether the worker still loads the model."""
        return self.alive and not self.ready

    @property
    def idle(self) -> bool:
        """Say whether no request is being served."""
        return not self._active and not self.pulling

    def start(self) -> None:
        """Start the worker; call it from the HTTP loop, to which deltas come back."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End the worker after its current step, whatever still runs; one that still loads is not waited for."""
        self._inbox.put(self._set_stopping)
        if self.loading:
            return
        await asyncio.to_thread(self._thread.join)

    async def generate(self, request: Request) -> AsyncGenerator[Delta]:
        """Yield the deltas of a request; closing the generator early frees its slot and KV at the next step."""
        deltas: asyncio.Queue[Delta] = asyncio.Queue()
        transferred = request.restored.tokens if request.restored else 0
        sequence = Sequence(
            next(self._ids), request.prompt, request.max_tokens, request.arrival, transferred, request.adapter
        )
        lost = request.restored.forgotten if request.restored else 0
        active = _Active(request, sequence, TextStream(request.stops), deltas)
        self._active[sequence.id] = active
        self._inbox.put(lambda: self._scheduler.add(sequence, lost))
        delta: Delta | None = None
        try:
            while delta is None or delta.reason is None:
                delta = await deltas.get()
                yield delta
        finally:
            if delta is None or delta.reason is None:
                self._inbox.put(lambda: self._abort(active))

    def release(self, handle: str) -> None:
        """Give up a held state: it was fetched, or nobody will."""
        self._inbox.put(lambda: self._release(handle))

    def _work(self) -> None:
        try:
            self.backend.load()
            self._guesser = self._make_guesser() if self._make_guesser else None
            self._describe()
            self.ready = True
            log.info("ready")
            while not self._stopping:
                self._turn()
        except BaseException as error:
            self.failure = error
            if self.ready or not isinstance(error, OSError | ValueError):
                log.exception("the engine's worker ended", extra={"reason": str(error)})
            else:
                log.error("cannot load: %s", error)
        finally:
            self.ready = False
            self.backend.close()

    def _turn(self) -> None:
        """Do what the inbox asks, let leases end, run one step; sleep where there is none."""
        while not self._inbox.empty():
            self._inbox.get()()
        now = time.monotonic()
        for handle in [handle for handle, held in self.held.items() if held.expires <= now]:
            if not self.held[handle].fetched:
                self.metrics.expired.inc()
            self._release(handle)
        step = self._scheduler.plan(now, self._guesses())
        if step is None:
            wake = self._scheduler.wake_at(now)
            timeout = _IDLE_SECONDS if wake is None else min(_IDLE_SECONDS, wake - now)
            try:
                self._inbox.get(timeout=timeout)()
            except queue.Empty:
                return
        else:
            self._execute(step)

    def _describe(self) -> None:
        options = self.options
        self.metrics.describe(
            **self.backend.facts(),
            batching=options.batching,
            speculation=options.speculation,
            adapters=str(len(options.adapters)),
        )

    def _guesses(self) -> Mapping[int, Tokens[int]]:
        """Ask for guesses at what every running answer says next."""
        answering = self._scheduler.answering
        if self._guesser is None or not answering:
            return NOTHING
        self._guesser.forget(self._scheduler.running.keys())
        try:
            return self._guesser.propose(answering)
        except RuntimeError as error:  # answers do not depend on guesses: go on without
            log.exception("guesses ended", extra={"reason": str(error)})
            self._guesser = None
            return NOTHING

    def _execute(self, step: Step) -> None:
        for operation in step.operations:
            if isinstance(operation, Restore):
                self._restore(operation.sequence)
            else:
                self.backend.apply(operation)
        chunks = [chunk for chunk in step.chunks if chunk.sequence.id in self._scheduler.running]
        sampling = {chunk.sequence.id: self._active[chunk.sequence.id].request.sampling for chunk in chunks}
        try:
            sampled = self.backend.run(chunks, sampling, step.kv_use) if chunks else {}
        except RuntimeError as error:
            log.exception("a step failed", extra={"reason": str(error)})
            for chunk in chunks:
                self._end(self._active[chunk.sequence.id], "error", error=str(error), reuse=False)
        else:
            now = time.monotonic()
            self._count(chunks, sampled)
            for sequence in self._scheduler.commit(step, sampled):
                self._advance(self._active[sequence.id], len(sampled[sequence.id]), now)
        self._publish()

    def _restore(self, sequence: Sequence) -> None:
        pulled = self._active[sequence.id].request.restored
        assert pulled is not None
        try:
            self.backend.import_state(sequence.slot, pulled.tokens - pulled.forgotten, pulled.take())
        except StateRefused as error:
            self.metrics.transfer_failures.inc()
            log.warning("a transferred state was refused", extra={"reason": str(error)})
            if self.options.recompute:
                self._scheduler.restore_failed(sequence)
            else:
                self._end(self._active[sequence.id], "error", error=str(error), reuse=False)

    def _count(self, chunks: list[Chunk], sampled: Mapping[int, Tokens[int]]) -> None:
        for chunk in chunks:
            if chunk.guesses:
                self.metrics.drafts.inc()
                self.metrics.guessed.inc(len(chunk.guesses))
                self.metrics.accepted.inc(len(sampled[chunk.sequence.id]) - 1)

    def _advance(self, active: _Active, count: int, now: float) -> None:
        """Account for a sequence's `count` new tokens, which came at once, and end the sequence where a token, the text or
        the limit says so; tokens behind that are taken back.
        """
        sequence, request = active.sequence, active.request
        if active.last_token is None:
            active.first_token = now
            self.metrics.first_token.observe(now - request.arrival)
            self.metrics.prompt_done(len(request.prompt), sequence.cached, sequence.transferred)
        else:
            self.metrics.gap.observe(now - active.last_token)
        active.last_token = now
        text = ""
        reason: Reason | None = None
        for left in range(count - 1, -1, -1):
            token = sequence.tokens[-1 - left]
            self.metrics.generated.inc()
            if token in self.backend.end_tokens and not request.ignore_eos:
                reason = "stop"
            else:
                text += active.text.push(self.backend.piece(token))
                if active.text.stopped:
                    reason = "stop"
                elif sequence.generated - left == request.max_tokens:
                    reason = "length"
            if reason is not None:
                self._scheduler.cut(sequence, left)
                self._end(active, reason, text)
                return
        self._send(active, text)

    def _end(
        self, active: _Active, reason: Reason, text: str = "", error: str | None = None, reuse: bool = True
    ) -> None:
        kept = not active.sequence.forgotten or active.sequence.generated == 1  # else the prompt's end may be forgotten
        handle = self._hold(active) if active.request.hold and reason != "error" and kept else None
        self._scheduler.finish(active.sequence, hold=handle is not None, reuse=reuse)
        text += active.text.close()
        self._send(active, text, reason, handle, error)
        self._record(active, reason)

    def _hold(self, active: _Active) -> Handle:
        """Export a finished prompt without its last token, and keep it under a lease."""
        sequence = active.sequence
        prompt = active.request.prompt[:-1]
        forgotten = len(sequence.forgotten)
        state = self.backend.export_state(sequence.slot, len(prompt) - forgotten)
        handle = Handle(new_capability(), self._scheduler.pool.blocks(sequence.id), len(prompt))
        header = pack_header(self.backend.identity(sequence.adapter), self.backend.layout, prompt, state, forgotten)
        self.held[handle.id] = Held(header, state, len(prompt), sequence, time.monotonic() + self.options.lease_seconds)
        return handle

    def _release(self, handle: str) -> None:
        held = self.held.pop(handle, None)
        if held is not None:
            self._scheduler.release(held.sequence)

    def _abort(self, active: _Active) -> None:
        """End a request whose client is gone; one that ended in the meantime gives up what it holds."""
        if active.sequence.id in self._active:
            self._scheduler.finish(active.sequence)
            self._record(active, "abort")
            return
        for handle in [handle for handle, held in self.held.items() if held.sequence is active.sequence]:
            self._release(handle)

    def _record(self, active: _Active, reason: str) -> None:
        del self._active[active.sequence.id]
        self.backend.end(active.sequence.id)
        now = time.monotonic()
        spent = Spent(active.request.arrival, active.sequence.started, active.first_token, active.last_token, now)
        self.metrics.request_done(reason, spent, len(active.request.prompt), active.sequence.generated)

    def _send(
        self,
        active: _Active,
        text: str,
        reason: Reason | None = None,
        handle: Handle | None = None,
        error: str | None = None,
    ) -> None:
        sequence = active.sequence
        delta = Delta(text, sequence.generated, sequence.cached + sequence.transferred, reason, handle, error)
        self._outbox.items.append((active.deltas, delta))

    def _publish(self) -> None:
        scheduler, metrics = self._scheduler, self.metrics
        metrics.preemptions.inc(scheduler.preemptions)
        metrics.cache_queries.inc(scheduler.cache_queries)
        metrics.cache_hits.inc(scheduler.cache_hits)
        metrics.forgotten.inc(scheduler.forgotten)
        scheduler.preemptions = scheduler.cache_queries = scheduler.cache_hits = scheduler.forgotten = 0
        if self._outbox.items and self._loop is not None:
            self._loop.call_soon_threadsafe(self._outbox.deliver)
            self._outbox = _Outbox()

    def _set_stopping(self) -> None:
        self._stopping = True
