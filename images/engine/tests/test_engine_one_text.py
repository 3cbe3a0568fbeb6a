"""What a sequence says depends on its text alone: a property of the scheduler, also where a window forgets."""

from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_rig import Rig, limits
from steelyard_engine.kv import BLOCK
from steelyard_engine.scheduler import Scheduler
from steelyard_engine.steps import Sequence, Window


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
