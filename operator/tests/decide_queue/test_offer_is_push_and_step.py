"""`offer` is a short cut: whatever happened before, it decides what `push` and `step` would have decided."""

from hypothesis import given, settings
from hypothesis import strategies as st
from steelyard.decide.queue.admission import DecodeQueue, Sequence
from steelyard.decide.queue.dispatch import Job, Order, PrefillQueue
from steelyard.decide.queue.role import Dispatch

EVENTS = st.lists(
    st.tuples(st.just("arrive"), st.floats(1, 4000), st.floats(0, 3), st.none() | st.sampled_from("abc"))
    | st.tuples(st.just("end"), st.integers(0, 30))
    | st.tuples(st.just("prefilled"), st.integers(0, 30))
    | st.tuples(st.just("ready"), st.sets(st.sampled_from("abc")))
    | st.tuples(st.just("wait"), st.floats(0, 1)),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(
    events=EVENTS,
    order=st.sampled_from(Order),
    budget=st.none() | st.floats(0.01, 2.0),
    theta=st.floats(0.0, 0.5),
    slots=st.none() | st.integers(1, 3),
)
def test_prefill(
    events: list[tuple[object, ...]], order: Order, budget: float | None, theta: float, slots: int | None
) -> None:
    short, long = (
        PrefillQueue(lambda n: 0.01 + n / 10_000, order=order, ttft_budget=budget, theta=theta, slots=slots)
        for _ in range(2)
    )
    now, arrived = 100.0, 0
    for queue in (short, long):
        queue.set_ready("ab")
    for event, *about in events:
        if event == "arrive":
            tokens, age, affine = about
            job = Job(arrived, tokens / 2, tokens, now - age, affine)
            arrived += 1
            where = short.offer(job, now)
            long.push(job)
            sent = [Dispatch(job.key, where)] if where is not None else short.step(now)
            assert sent == long.step(now)
            continue
        now += about[0] if event == "wait" else 0.0
        for queue in (short, long):
            if event == "end":
                queue.drop(about[0], now)
            elif event == "prefilled":
                queue.prefilled(about[0], now)
            elif event == "ready":
                queue.set_ready(about[0])
        assert short.step(now) == long.step(now)
        assert short.waiting() == long.waiting()
        assert short.outstanding_tokens == long.outstanding_tokens


@settings(max_examples=200, deadline=None)
@given(events=EVENTS, objective=st.none() | st.floats(0.01, 2.0), slots=st.integers(1, 3))
def test_decode(events: list[tuple[object, ...]], objective: float | None, slots: int) -> None:
    short, long = (DecodeQueue(slots=slots, ttft_objective=objective) for _ in range(2))
    now, arrived = 100.0, 0
    for queue in (short, long):
        queue.set_ready("ab")
    for event, *about in events:
        if event == "arrive":
            sequence = Sequence(arrived, about[0], now - about[1])
            arrived += 1
            where = short.offer(sequence)
            long.push(sequence)
            sent = [Dispatch(sequence.key, where)] if where is not None else short.step(now)
            assert sent == long.step(now)
            continue
        now += about[0] if event == "wait" else 0.0
        for queue in (short, long):
            if event in ("end", "prefilled"):
                queue.drop(about[0])
            elif event == "ready":
                queue.set_ready(about[0])
        assert short.step(now) == long.step(now)
        assert short.waiting() == long.waiting()
        assert short.outstanding_tokens == long.outstanding_tokens
