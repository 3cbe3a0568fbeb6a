"""A scheduler under test: limits, and a rig that checks every step as a backend would carry it out."""

from collections.abc import Callable
from dataclasses import dataclass, field

from steelyard_engine.kv import BLOCK
from steelyard_engine.scheduler import Scheduler
from steelyard_engine.steps import Free, Limits, Restore, Sequence, Share, Shift, Step


def token_at(place: int) -> int:
    """The token at a place of every answer."""
    return 500 + place


def limits(**changes: object) -> Limits:
    values: dict[str, object] = {
        "max_sequences": 2,
        "max_batch_tokens": 8,
        "kv_tokens": 64 * BLOCK,
        "slots": 8,
        "batching": "chunked",
        "max_wait": 1.0,
    }
    return Limits(**(values | changes))  # type: ignore[arg-type]


@dataclass
class Rig:
    """A scheduler with a backend that checks that every token runs once, in order, in a slot that is its own."""

    scheduler: Scheduler
    now: float = 0.0
    cells: dict[int, list[int]] = field(default_factory=dict)  # slot -> tokens whose KV it holds
    ended: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    guess: Callable[[Sequence], list[int]] = lambda _: []
    right: int = 0  # guesses that were kept
    say: Callable[[list[int]], int] = lambda cells: token_at(len(cells))  # the token behind those in a slot

    def add(self, number: int, prompt: int | list[int], answer: int, transferred: int = 0) -> Sequence:
        tokens = [number * 1000 + place for place in range(prompt)] if isinstance(prompt, int) else prompt
        sequence = Sequence(number, tuple(tokens), answer, self.now, transferred)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> Step | None:
        self.now += 0.01
        guesses = {sequence.id: self.guess(sequence) for sequence in self.scheduler.answering}
        step = self.scheduler.plan(self.now, guesses)
        if step is None:
            return None
        self.steps.append(step)
        for operation in step.operations:
            match operation:
                case Free(slot):
                    self.cells.pop(slot, None)
                case Share(source, slot, tokens):
                    assert slot not in self.cells, "shared into a slot that is in use"
                    assert len(self.cells[source]) >= tokens, "shared what the source does not hold"
                    self.cells[slot] = self.cells[source][:tokens]
                case Shift(slot, start, end):
                    del self.cells[slot][start:end]
                case Restore(sequence):
                    assert sequence.slot not in self.cells
                    self.cells[sequence.slot] = list(sequence.tokens[: sequence.transferred - len(sequence.forgotten)])
        assert sum(chunk.size for chunk in step.chunks) <= self._budget(step)
        sampled: dict[int, list[int]] = {}
        for chunk in step.chunks:
            cells = self.cells.setdefault(chunk.sequence.slot, [])
            assert cells == chunk.sequence.tokens[: chunk.start], "the slot does not hold what comes before"
            cells.extend(chunk.sequence.tokens[chunk.start : chunk.end])
            if chunk.sample:
                sampled[chunk.sequence.id] = found = [self.say(cells)]
                for guess in chunk.guesses:
                    if guess != found[-1]:
                        break
                    cells.append(guess)
                    found.append(self.say(cells))
                self.right += len(found) - 1
            assert len(self.scheduler.pool.blocks(chunk.sequence.id)) * BLOCK >= chunk.start + chunk.size
        for sequence in self.scheduler.commit(step, sampled):
            if sequence.generated == sequence.max_tokens:
                self.end(sequence)
        return step

    def end(self, sequence: Sequence, hold: bool = False) -> None:
        self.scheduler.finish(sequence, hold=hold)
        self.ended.append(sequence.id)

    def _budget(self, step: Step) -> int:
        if self.scheduler.limits.batching == "chunked" or len(step.chunks) > 1:
            return self.scheduler.limits.max_batch_tokens
        return 10**9  # one long prompt in a pass of its own

    def shape(self) -> list[tuple[int, int]]:
        """Run a step and return (sequence, tokens) for each chunk."""
        step = self.step()
        return [(chunk.sequence.id, chunk.end - chunk.start) for chunk in step.chunks] if step else []
