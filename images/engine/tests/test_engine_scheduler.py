"""The scheduler, step by step: tables for what each strategy does, properties for what must hold whatever happens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_rig import Rig, limits, token_at
from steelyard_engine.kv import BLOCK, blocks_for
from steelyard_engine.scheduler import Scheduler
from steelyard_engine.steps import Restore, Sequence

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
