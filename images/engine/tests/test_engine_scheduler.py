"""The scheduler, step by step: tables for what each strategy does, properties for what must hold whatever happens."""

from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steelyard_engine.kv import BLOCK, blocks_for
from steelyard_engine.scheduler import Scheduler
from steelyard_engine.steps import Free, Limits, Restore, Sequence, Share, Shift, Step, Window


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


SHAPES = [
    (
        "chunked",
        [(1, 10, 3), (2, 5, 2)],
        [[(1, 8)], [(1, 2), (2, 5)], [(1, 1), (2, 1)], [(1, 1)]],
        "prompts are cut at the budget of 8, decodes go along",
    ),
    (
        "continuous",
        [(1, 10, 3), (2, 5, 2)],
        [[(1, 10)], [(2, 5)], [(1, 1), (2, 1)], [(1, 1)]],
        "a prompt beyond the budget runs alone, the next prompt before any decode",
    ),
    (
        "static",
        [(1, 3, 1), (2, 3, 3), (3, 3, 1)],
        [[(1, 3), (2, 3)], [(2, 1)], [(2, 1)], [(3, 3)]],
        "the third waits until the batch of two has ended, although a place is free",
    ),
]


@pytest.mark.parametrize(("batching", "requests", "shapes", "because"), SHAPES, ids=[row[0] for row in SHAPES])
def test_strategy(batching: str, requests: list[tuple[int, int, int]], shapes: list[object], because: str):
    rig = Rig(Scheduler(limits(batching=batching)))
    for request in requests:
        rig.add(*request)
    assert [rig.shape() for _ in shapes] == shapes, because
    assert rig.shape() == []


def test_a_dynamic_batch_waits_for_company_but_not_for_ever():
    rig = Rig(Scheduler(limits(batching="dynamic", max_wait=1.0)))
    rig.add(1, 3, 1)
    assert rig.shape() == []
    assert rig.scheduler.wake_at(rig.now) == pytest.approx(1.0)
    rig.now = 1.0
    assert rig.shape() == [(1, 3)]
    rig.add(2, 3, 1)
    rig.add(3, 3, 1)
    assert rig.shape() == [(2, 3), (3, 3)], "a full batch starts at once"


def test_a_repeated_prompt_is_shared_but_for_what_must_be_run():
    rig = Rig(Scheduler(limits(max_batch_tokens=100)))
    prompt = list(range(2 * BLOCK))
    rig.add(1, prompt, 1)
    assert rig.shape() == [(1, 32)]
    second = rig.add(2, prompt, 1)
    assert rig.shape() == [(2, BLOCK)], "the last block holds the token to run"
    assert second.cached == BLOCK
    assert (rig.scheduler.cache_queries, rig.scheduler.cache_hits) == (64, 16)


def test_a_transferred_prompt_runs_its_last_token_only():
    rig = Rig(Scheduler(limits()))
    rig.add(1, 40, 3, transferred=39)
    assert [rig.shape() for _ in range(3)] == [[(1, 1)]] * 3
    assert rig.ended == [1]


def test_a_refused_state_is_computed_here():
    rig = Rig(Scheduler(limits(max_batch_tokens=100)))
    sequence = rig.add(1, 40, 1, transferred=39)
    step = rig.scheduler.plan(0.0)
    assert step is not None
    assert any(isinstance(operation, Restore) for operation in step.operations)
    rig.scheduler.restore_failed(sequence)
    assert rig.scheduler.commit(step, {1: [5]}) == []
    assert rig.shape() == [(1, 40)]
    assert rig.scheduler.preemptions == 0


def test_the_youngest_gives_way_when_kv_runs_out_and_comes_back():
    rig = Rig(Scheduler(limits(kv_tokens=5 * BLOCK, max_batch_tokens=100)))
    rig.add(1, BLOCK, 3 * BLOCK)
    second = rig.add(2, BLOCK, 3 * BLOCK)
    rig.add(3, BLOCK, 1)
    while rig.step() is not None:
        assert rig.scheduler.pool.used <= rig.scheduler.pool.total
    assert rig.ended == [1, 3, 2], "the second waits for the first, and the third does not overtake it into the batch"
    assert rig.scheduler.preemptions == 1
    fourth = rig.add(4, [*second.prompt, 1], 1)
    rig.step()
    assert fourth.cached == BLOCK, "what was computed anew is found again"


def test_held_kv_blocks_others_until_it_is_released():
    rig = Rig(Scheduler(limits(kv_tokens=3 * BLOCK, max_batch_tokens=100)))
    first = rig.add(1, 2 * BLOCK, 5)
    rig.step()
    rig.end(first, hold=True)
    rig.add(2, BLOCK, BLOCK)
    rig.add(3, 2 * BLOCK, 1)
    for _ in range(BLOCK):
        rig.step()
    assert rig.ended == [1], "the second has used its block and waits, the third does not fit"
    assert rig.step() is None, "waiting for held KV is not busy"
    rig.scheduler.release(first)
    while rig.step() is not None:
        pass
    assert rig.ended == [1, 2, 3]


def test_a_dynamic_batch_that_is_due_but_has_no_kv_waits_for_an_event():
    rig = Rig(Scheduler(limits(batching="dynamic", kv_tokens=2 * BLOCK, max_batch_tokens=100, max_wait=0.0)))
    first = rig.add(1, BLOCK, 5)
    rig.step()
    rig.end(first, hold=True)
    rig.add(2, 2 * BLOCK, 0)
    assert rig.step() is None
    assert rig.scheduler.wake_at(rig.now) is None


def test_what_can_never_fit_is_refused():
    with pytest.raises(ValueError, match="KV capacity of 32 tokens"):
        Rig(Scheduler(limits(kv_tokens=32))).add(1, 20, 13)


GUESSES = [
    # guesses at the answer to a prompt of 3, step by step; tokens of each step; because
    ([], 8, [1, 1, 1, 1], "no guess is no harm"),
    ([504, 505, 506], 8, [4], "all right: they and one more"),
    ([504, 9, 506], 8, [2, 2], "what follows a wrong one does not count"),
    ([9], 8, [1, 1, 1, 1], "wrong: one token as ever"),
    ([504, 505, 506, 507, 508, 509], 8, [4], "never beyond the answer's limit"),
    ([504, 505, 506], 3, [3, 1], "the step's budget bounds them"),
]


@pytest.mark.parametrize(("guesses", "budget", "gained", "because"), GUESSES)
def test_guesses(guesses: list[int], budget: int, gained: list[int], because: str):
    rig = Rig(Scheduler(limits(max_batch_tokens=budget)))
    sequence = rig.add(1, 3, 5)
    rig.step()
    rig.guess = lambda sequence: [guess + sequence.generated - 1 if guess > 500 else guess for guess in guesses]
    seen = []
    while rig.ended == []:
        before = sequence.generated
        rig.step()
        seen.append(sequence.generated - before)
    assert seen == gained, because
    assert sequence.tokens[3:] == [token_at(place) for place in range(3, 8)]


def test_guesses_take_no_kv_that_others_need_and_no_place_in_the_step():
    rig = Rig(Scheduler(limits(kv_tokens=4 * BLOCK, max_batch_tokens=4)))
    rig.add(1, 2 * BLOCK - 1, BLOCK)
    rig.add(2, BLOCK - 1, BLOCK)
    rig.guess = lambda sequence: [token_at(place) for place in range(len(sequence.tokens), len(sequence.tokens) + 3)]
    while not rig.ended:
        rig.step()
        assert all(chunk.is_decode or not chunk.guesses for chunk in rig.steps[-1].chunks)
    assert rig.scheduler.preemptions == 0
    assert rig.right > 0


def test_an_answer_that_ends_before_its_last_tokens_is_cut():
    rig = Rig(Scheduler(limits()))
    sequence = rig.add(1, 3, 20)
    rig.step()
    rig.guess = lambda sequence: [token_at(place) for place in range(len(sequence.tokens), len(sequence.tokens) + 3)]
    rig.step()
    assert sequence.generated == 5
    rig.scheduler.cut(sequence, 3)
    rig.end(sequence)
    assert (sequence.generated, sequence.computed) == (2, 5)


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 3),  # kind of prompt: equal kinds share prefixes
        st.integers(1, 3 * BLOCK),
        st.integers(1, 2 * BLOCK),
        st.booleans(),  # its state comes from another engine
        st.sampled_from([None, None, None, "cancel", "hold"]),
        st.integers(0, 12),  # steps before it arrives, after the one before
    ),
    min_size=1,
    max_size=14,
)


@settings(deadline=None)
@given(
    REQUESTS,
    st.sampled_from(["chunked", "continuous", "static", "dynamic"]),
    st.integers(1, 4),
    st.integers(4, 40),
    st.integers(5, 12),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=5),  # guesses, and how many of them are right
)
def test_every_request_ends_exactly_once_within_the_kv(
    requests: list[tuple[int, int, int, bool, str | None, int]],
    batching: str,
    sequences: int,
    budget: int,
    blocks: int,
    extra_slots: int,
    guesses: list[tuple[int, int]],
):
    given_limits = limits(
        batching=batching,
        max_sequences=sequences,
        max_batch_tokens=budget,
        kv_tokens=blocks * BLOCK,
        slots=sequences + extra_slots,
        max_wait=0.05,
    )
    rig = Rig(Scheduler(given_limits))
    live: list[tuple[Sequence, str | None]] = []

    def guess(sequence: Sequence) -> list[int]:
        count, right = guesses[len(rig.steps) % len(guesses)] if guesses else (0, 0)
        places = range(len(sequence.tokens), len(sequence.tokens) + count)
        return [token_at(place) if index < right else -1 for index, place in enumerate(places)]

    rig.guess = guess

    def step() -> None:
        rig.step()
        pool = rig.scheduler.pool
        assert 0 <= pool.used <= pool.total
        assert 0.0 <= rig.scheduler.kv_use <= 1.0
        assert len(rig.scheduler.running) <= sequences
        slots = [one.slot for one in (*rig.scheduler.running.values(), *rig.scheduler.held.values())]
        assert len(set(slots)) == len(slots)
        for one in rig.scheduler.running.values():
            assert len(pool.blocks(one.id)) >= blocks_for(one.computed)
            assert one.tokens[len(one.prompt) :] == [token_at(p) for p in range(len(one.prompt), len(one.tokens))]
        for one, fate in list(live):
            if one.id in rig.ended:
                live.remove((one, fate))
            elif fate == "cancel" and one.generated > one.max_tokens // 2:
                rig.end(one)
            elif fate == "hold" and one.generated:
                rig.end(one, hold=True)
        for one in list(rig.scheduler.held.values())[:-1]:
            rig.scheduler.release(one)

    for number, (kind, prompt, answer, transferred, fate, gap) in enumerate(requests):
        for _ in range(gap):
            step()
        tokens = [kind * 1000 + place for place in range(prompt)]
        live.append((rig.add(number, tokens, answer, prompt - 1 if transferred else 0), fate))
    for _ in range(4000):
        if not rig.scheduler.busy:
            break
        for one in list(rig.scheduler.held.values()):
            rig.scheduler.release(one)
        step()
    assert not rig.scheduler.busy, "somebody starved"
    step()
    assert sorted(rig.ended) == list(range(len(requests)))
    for one in list(rig.scheduler.held.values()):
        rig.scheduler.release(one)
    assert rig.scheduler.pool.used == 0


def whole(sequence: Sequence) -> list[int]:
    """Prompt and answer, with what was forgotten."""
    sink = sequence.window.sink if sequence.window else 0
    return sequence.tokens[:sink] + sequence.forgotten + sequence.tokens[sink:]


def depends_on_all(cells: list[int]) -> int:
    """A token that is another one wherever any token in the cache is."""
    return crc32(repr(cells).encode()) % 1000


def alone(prompt: list[int], count: int, window: Window | None) -> list[int]:
    """What a model says that computes one token after the other, and forgets as the window has it."""
    bounded = window if window is not None and len(prompt) + count > window.size else None
    cells: list[int] = []
    text = list(prompt)
    while len(text) < len(prompt) + count:
        for token in text[-1:] if len(text) > len(prompt) else prompt:
            if bounded is not None and len(cells) == bounded.size:
                del cells[bounded.sink : bounded.sink + bounded.stride]
            cells.append(token)
        text.append(depends_on_all(cells))
    return text[len(prompt) :]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 4 * BLOCK), st.integers(1, 2 * BLOCK)), min_size=1, max_size=6
    ),
    st.none() | st.builds(Window, st.integers(1, 5), st.integers(2 * BLOCK, 3 * BLOCK)),
    st.sampled_from(["chunked", "continuous", "static", "dynamic"]),
    st.integers(1, 3),
    st.integers(3, 40),
    st.integers(6, 12),
    st.integers(0, 4),
)
def test_a_text_depends_on_its_prompt_alone(
    requests: list[tuple[int, int, int]],
    window: Window | None,
    batching: str,
    sequences: int,
    budget: int,
    blocks: int,
    guesses: int,
):
    """However prompts are cut, who runs beside, what is shared, preempted or guessed: also where a window forgets."""
    given_limits = limits(
        batching=batching,
        max_sequences=sequences,
        max_batch_tokens=budget,
        kv_tokens=blocks * BLOCK,
        slots=sequences + 2,
        max_wait=0.0,
        window=window,
    )
    rig = Rig(Scheduler(given_limits), say=depends_on_all)
    rig.guess = lambda sequence: [depends_on_all(rig.cells.get(sequence.slot, []) + sequence.tokens[-1:])] * guesses
    texts = {}
    for number, (kind, prompt, count) in enumerate(requests):
        tokens = [kind * 1000 + place for place in range(prompt)]
        texts[number] = (rig.add(number, tokens, count), alone(tokens, count, window))
    for _ in range(2000):
        if not rig.scheduler.busy:
            break
        rig.step()
        for slot in (one.slot for one in rig.scheduler.running.values() if one.window is not None):
            assert window is not None
            assert len(rig.cells.get(slot, [])) <= window.size
    assert sorted(rig.ended) == sorted(texts)
    for sequence, expected in texts.values():
        assert whole(sequence)[len(sequence.prompt) :] == expected


def test_a_window_takes_no_more_kv_than_its_size_and_keeps_nothing_for_reuse():
    rig = Rig(Scheduler(limits(kv_tokens=4 * BLOCK, max_batch_tokens=100, window=Window(4, 2 * BLOCK - 4))))
    rig.add(1, 6 * BLOCK, 2 * BLOCK)
    rig.step()
    most = 0
    while rig.step() is not None:
        most = max(most, rig.scheduler.pool.used)
    assert (rig.ended, most) == ([1], 2)
    assert rig.scheduler.forgotten >= 6 * BLOCK, "of eight blocks two are kept"
    assert rig.scheduler.pool.soft_owners == []


def test_a_state_that_has_forgotten_goes_on_where_it_was():
    window = Window(4, 2 * BLOCK)
    rig = Rig(Scheduler(limits(max_batch_tokens=100, window=window)), say=depends_on_all)
    prompt = list(range(3 * BLOCK))
    first = rig.add(1, prompt, 1)
    while 1 not in rig.ended:
        rig.step()
    second = Sequence(2, tuple(prompt), 5, 0.0, len(prompt) - 1)
    rig.scheduler.add(second, len(first.forgotten))
    while 2 not in rig.ended:
        rig.step()
    assert whole(second)[len(prompt) :] == alone(prompt, 5, window)
