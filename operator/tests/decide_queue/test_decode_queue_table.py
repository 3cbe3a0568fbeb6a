"""The decode queue, decision by decision: given / then / because."""

from dataclasses import dataclass, field

import pytest
from steelyard.decide.queue.admission import DecodeQueue, Sequence
from steelyard.decide.queue.role import Dispatch


def seq(key: int, tokens: float = 100, arrived: float = 0.0) -> Sequence:
    return Sequence(key, tokens, arrived)


@dataclass
class Case:
    because: str
    waiting: list[Sequence]
    sent: list[tuple[int, str]]
    now: float = 0.0
    replicas: tuple[str, ...] = ("a",)
    slots: int = 2
    objective: float | None = None
    running: list[Sequence] = field(default_factory=list)


CASES = [
    Case("in order of arrival", [seq(1, arrived=0.2), seq(2, arrived=0.1)], [(2, "a"), (1, "a")]),
    Case("no further than the batch that keeps the objective", [seq(1), seq(2), seq(3)], [(1, "a"), (2, "a")]),
    Case("to the fewest KV tokens, not the fewest sequences", [seq(9, 10)], [(9, "b")], replicas=("a", "b"), slots=8,
         running=[seq(1, 1000), seq(2, 100), seq(3, 100)]),
    Case("a full replica is no choice, however few its tokens", [seq(9, 10)], [(9, "a")], replicas=("a", "b"), slots=2,
         running=[seq(1, 1000), seq(2, 10), seq(3, 10)]),
    Case("nobody ready, nobody admitted", [seq(1)], [], replicas=()),
    Case("who has missed the first-token objective comes last", [seq(1, arrived=-9.0), seq(2), seq(3)],
         [(2, "a"), (3, "a")], objective=1.0),
    Case("but comes, when there is room", [seq(1, arrived=-9.0), seq(2)], [(2, "a"), (1, "a")], objective=1.0),
    Case("without an objective nobody is late", [seq(1, arrived=-9.0), seq(2), seq(3)], [(1, "a"), (2, "a")]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.because)
def test_admission(case: Case) -> None:
    queue = DecodeQueue(slots=case.slots, ttft_objective=None)
    queue.set_ready(case.replicas)
    for running in case.running:
        queue.push(running)
        assert queue.step(0.0), "the case's own set-up"
    queue.ttft_objective = case.objective
    for waiting in case.waiting:
        queue.push(waiting)
    assert queue.step(case.now) == [Dispatch(key, replica) for key, replica in case.sent]


def test_an_ended_sequence_makes_room() -> None:
    queue = DecodeQueue(slots=1)
    queue.set_ready(["a"])
    queue.push(seq(1))
    queue.push(seq(2))
    assert [d.key for d in queue.step(0.0)] == [1]
    queue.drop(1)
    assert [d.key for d in queue.step(0.0)] == [2]
    assert queue.outstanding_tokens == 100


def test_a_replica_that_leaves_keeps_its_sequences_on_the_books_until_they_end() -> None:
    queue = DecodeQueue(slots=4)
    queue.set_ready(["a"])
    queue.push(seq(1))
    queue.step(0.0)
    queue.set_ready([])
    assert queue.running_on("a") == 1
    assert queue.retiring()
    queue.drop(1)
    assert not queue.retiring()
    assert queue.empty()


def test_a_retry_avoids_the_replica_that_failed_even_where_it_is_full_elsewhere() -> None:
    queue = DecodeQueue(slots=1)
    queue.set_ready(["a", "b"])
    for key in (1, 2):
        queue.push(seq(key))
    where = {d.key: d.replica for d in queue.step(0.0)}
    assert queue.retry(1) == where[2]


@pytest.mark.parametrize(
    ("replicas", "slots", "waiting", "backed_up"),
    [(1, 8, 3, False), (1, 8, 4, True), (2, 8, 7, False), (1, 1, 0, False), (1, 1, 1, True), (0, 8, 1, True)],
)
def test_more_waiting_than_half_the_slots_is_enough(replicas: int, slots: int, waiting: int, backed_up: bool) -> None:
    queue = DecodeQueue(slots=slots)
    queue.set_ready([f"r{i}" for i in range(replicas)])
    for key in range(replicas * slots):
        queue.push(seq(key))
    queue.step(0.0)
    for key in range(waiting):
        queue.push(seq(1000 + key))
    assert queue.backed_up() is backed_up
