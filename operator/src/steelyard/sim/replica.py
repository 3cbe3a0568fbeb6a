"""One replica: prompts and sequences in, passes of its engine, tokens out.

A pass that holds prompt tokens ends when it ends. Decode alone is not simulated step by step: such a `Stretch` lasts until
the first sequence is complete or KV is full, in closed form; a newcomer cuts it at the next step's end. What it holds, and
the KV of that, is `store.py`.
"""

from heapq import heappop

from steelyard.sim.engine import Batching
from steelyard.sim.requests import Request
from steelyard.sim.store import Store
from steelyard.sim.stretch import Stretch


class Replica(Store):
    """The engine's state machine. `role` is the fleet's to set: an engine does whatever it is sent."""

    # --- work in

    def prefill(self, request: Request, now: float, *, local: bool) -> None:
        """Take a prompt; `local` if it is to decode here too."""
        request.local, request.replica, request.sent_at = local, self, now
        self.waiting.append(request)
        self.outstanding += request.left
        self.kick(now)

    def decode(self, request: Request, now: float) -> None:
        """Take a prefilled request."""
        request.decoding, request.replica, request.sent_at = True, self, now
        if self._gated or self.incoming or not self._fits(request):
            self.incoming.append(request)
            self.kick(now)
        else:
            self._take(request, now)
            if self.landed:
                self.kick(now)

    def leave(self, request: Request, now: float) -> None:
        """The client of a request that is here has left: forget it, what is in a pass or a step at the end of that. Finished
        prompts are let go by `release`."""
        if request.key in self.held:
            return
        if self.landing.pop(request.key, None) is not None:
            self.kv -= request.context
        elif request in self.landed:
            self.landed.remove(request)
            self.kv -= request.context
        elif request in self.incoming:
            self.incoming.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
            self.outstanding -= request.left
            self.kv -= request.context if request.reserved else 0
        else:
            request.gone = self._leaving = self.in_work(request)
            if request.gone:
                self.kick(now)
            return
        self._gate = min(self._gate, len(self.waiting) + len(self.incoming))
        if self.idle():
            self.host.at(now, self.emptied)
        else:
            self.host.at(now, self.kick)

    def in_work(self, request: Request) -> bool:
        """Whether a request is in the pass under way, or among the running sequences."""
        passing = self._pass is not None and request in self._pass[0]
        return passing or any(entry[2] is request for entry in self._heap)

    def abandon(self) -> list[Request]:
        """The replica dies. Return every request that it had, in order of key."""
        lost = {request.key: request for _, _, request in self._heap} | self.landing | self.held
        for several in (self.waiting, self.incoming, self.landed, self._pass[0] if self._pass is not None else []):
            lost |= {request.key: request for request in several}
        for kept in (self.waiting, self.incoming, self.landing, self.landed, self.held, self._heap, self._fresh):
            kept.clear()
        self._version += 1
        self._stretch = self._pass = None
        self.running = self.kv = self.outstanding = self._active = self._gate = 0
        return [lost[key] for key in sorted(lost)]

    # --- what can be seen from outside

    def idle(self) -> bool:
        """Whether nothing at all is left here."""
        under_way = self._pass is not None or self._stretch is not None
        return not (
            under_way or self.waiting or self.incoming or self.landing or self.landed or self.held or self.running
        )

    def sequences(self) -> int:
        """Sequences that decode here or are about to."""
        return self.running + len(self.incoming) + len(self.landing) + len(self.landed)

    def generated_by(self, now: float) -> int:
        """Tokens generated until `now`, those of the stretch under way included."""
        stretch = self._stretch
        return self._generated + (stretch.steps_within(now - self._since) * self.running if stretch is not None else 0)

    def kv_by(self, now: float) -> int:
        """KV tokens in use at `now`, the growth of the stretch under way included."""
        return self.kv + self.generated_by(now) - self._generated

    def token_seconds_by(self, now: float) -> float:
        """Seconds of decode steps until `now`, each counted for every sequence in it: over tokens it is the mean gap."""
        stretch = self._stretch
        if stretch is None:
            return self._token_seconds
        return self._token_seconds + stretch.seconds(stretch.steps_within(now - self._since)) * self.running

    def in_pass(self) -> int:
        """Prompts in the pass under way."""
        return 0 if self._pass is None else max(1, len(self._pass[0]))

    def busy_by(self, now: float) -> float:
        """Seconds spent in passes until `now`."""
        under_way = self._stretch is not None or self._pass is not None
        return self._busy_seconds + (now - self._since if under_way else 0.0)

    def emptied(self, now: float) -> None:
        """The last of what it had is gone: if it drains, it can go."""
        self.host.passed(self, now)

    # --- passes

    def kick(self, now: float) -> None:
        """Something new is here: begin, or end the stretch under way at its next step."""
        stretch = self._stretch
        if stretch is None:
            self.begin(now)
        elif not self._gated:
            steps = max(1, stretch.steps_until(now - self._since))
            if steps < stretch.steps:
                stretch.steps = steps
                self._schedule(self._since + stretch.seconds(steps))

    def begin(self, now: float) -> None:
        """Begin a pass or a stretch, if there is anything to do and none is under way."""
        if self._pass is not None or self._stretch is not None or self._ending:
            return
        if self._gated and not self._form(now):
            return
        while self.incoming and (self._gate or not self._gated) and self._fits(self.incoming[0]):
            self._gate -= self._gated
            self._take(self.incoming.popleft(), now)
        for request in self.landed:
            self._join(request)
        self.landed.clear()
        while self.running and self.kv + self.running > self.engine.kv_tokens:
            self._preempt()
        if not (self.waiting and self._prompts(now)) and self.running and not (self._gated and self.landing):
            self._decode(now)

    def allowance(self) -> tuple[int, int]:
        """Prompt tokens and prompts that the next pass may hold."""
        engine = self.engine
        mixed = self.running if engine.batching is Batching.CHUNKED else 0
        return engine.batch_tokens - mixed, engine.max_sequences - self.running - len(self.landing)

    def pass_seconds(self, pieces: list[int]) -> float:
        """Seconds of the prompt part of a pass, given the tokens of each prompt in it."""
        return self.engine.prefill_seconds(sum(pieces))

    def _prompts(self, now: float) -> bool:
        """Begin a pass with prompt tokens; False if none can be taken now."""
        budget, limit = self.allowance()
        waiting = self.waiting
        whole = self.engine.batching is not Batching.CHUNKED
        tokens = 0
        pieces: list[int] = []
        done: list[Request] = []
        while waiting and tokens < budget and len(pieces) < limit and (self._gate or not self._gated):
            request = waiting[0]
            if not request.reserved:
                if not self._reserve(request):
                    break
                request.begun = now
            piece = request.left
            if piece > budget - tokens:
                if whole and pieces:
                    break
                piece = piece if whole else budget - tokens
            request.left -= piece
            tokens += piece
            pieces.append(piece)
            if request.left:
                break
            done.append(waiting.popleft())
            self._gate -= self._gated
        if not pieces:
            return False
        seconds = self.pass_seconds(pieces)
        mixed = self.running > 0 and not whole
        if mixed:
            seconds += self.engine.step_seconds(self.running, self._active)
            self._first_tokens(now + seconds)
        self._pass, self._since = (done, tokens, mixed), now
        self._schedule(now + seconds)
        return True

    def _decode(self, now: float) -> None:
        """Begin a stretch of decode steps; there is KV for at least one."""
        room = (self.engine.kv_tokens - self.kv) // self.running
        steps = min(self._heap[0][0] - self._step, room)
        self._stretch = stretch = Stretch(self.engine, self.running, self._active, steps)
        self._since = now
        self._first_tokens(now + stretch.alpha)
        self._schedule(now + stretch.seconds(steps))

    def _first_tokens(self, when: float) -> None:
        """The step that begins now gives newcomers their first token: it cannot be cut."""
        for request in self._fresh:
            request.first = when
        self._fresh.clear()

    def _schedule(self, when: float) -> None:
        self._version += 1
        self.host.at(when, self._over, self._version)

    def _over(self, now: float, version: int) -> None:
        """A pass or stretch ends, unless it was cut short or the replica died meanwhile."""
        if version != self._version:
            return
        self._ending = True
        seconds = now - self._since
        self._busy_seconds += seconds
        if self._stretch is not None:
            steps, self._stretch = self._stretch.steps, None
            self._token_seconds += seconds * self.running
            self._advance(steps, now)
        elif self._pass is not None:
            (done, tokens, mixed), self._pass = self._pass, None
            self.outstanding -= tokens
            if mixed:
                self._token_seconds += seconds * self.running
                self._advance(1, now)
            self.passed(done, now)
        if self._leaving:
            self._forget()
        self.host.passed(self, now)
        self._ending = False
        self.begin(now)

    def _advance(self, steps: int, now: float) -> None:
        made = steps * self.running
        self._step += steps
        self.kv += made
        self._active += made
        self._generated += made
        heap = self._heap
        while heap and heap[0][0] <= self._step:
            request = heappop(heap)[2]
            tokens = request.context + request.answer - request.produced
            self.running -= 1
            self.kv -= tokens
            self._active -= tokens
            if not request.gone:
                self.host.completed(request, now)

    def passed(self, done: list[Request], now: float) -> None:
        """A pass has computed these prompts to their end."""
        for request in done:
            request.reserved = False
            if request.gone:
                self.kv -= request.context
                continue
            count, tokens, seconds = self.prefills
            self.prefills = (count + 1, tokens + request.tokens, seconds + now - request.begun)
            if self.cache is not None and request.blocks:
                self.cache.insert(request.blocks)
            if request.prefilled_at is None:
                request.prefilled_at = now
            if request.local or self.engine.answers_at_prefill:
                request.produced += 1
                self._generated += 1
                if request.first is None:
                    request.first = now
                    self.host.answered(request, now)
                if request.produced >= request.answer:
                    self.kv -= request.context
                    self.host.completed(request, now)
                    continue
            if request.local:
                self._join(request)
            else:
                self.hold(request, now)

    def hold(self, request: Request, now: float) -> None:
        """Keep a computed prompt until it is fetched."""
        self.held[request.key] = request
        request.held_by = self
        self.host.prefilled(request, now)

    def _form(self, now: float) -> bool:
        """Static and dynamic batching: open the gate for a new batch while nothing runs. False: keep waiting."""
        if self.running or self.landing or self.landed or self._gate > 0:
            return True
        here = len(self.waiting) + len(self.incoming)
        if not here:
            return False
        if self.engine.batching is Batching.DYNAMIC and here < self.engine.max_sequences:
            if self._waited_from is None:
                self._waited_from = now
                self.host.at(now + self.engine.max_wait_seconds, self.begin)
            if now < self._waited_from + self.engine.max_wait_seconds:
                return False
        self._waited_from = None
        self._gate = min(here, self.engine.max_sequences)
        return True
