"""The prefill queue, decision by decision: given / then / because."""

from dataclasses import dataclass, field

import pytest
from steelyard.decide.queue.dispatch import Job, Order, PrefillQueue
from steelyard.decide.queue.role import Dispatch


def seconds(tokens: float) -> float:
    """One second a thousand tokens: easy to reckon with."""
    return tokens / 1000


def job(key: int, tokens: float, arrived: float = 0.0, affine: str | None = None, full: float | None = None) -> Job:
    return Job(key, tokens, full if full is not None else tokens, arrived, affine)


@dataclass
class Case:
    because: str
    jobs: list[Job]
    sent: list[tuple[int, str]]
    now: float = 0.0
    replicas: tuple[str, ...] = ("a",)
    order: Order = Order.SHORTEST_FIRST
    budget: float | None = None
    theta: float = 0.0
    slots: int | None = None
    busy: list[Job] = field(default_factory=list)  # sent at time 0, before the others arrive


CASES = [
    Case("the shortest goes first", [job(1, 900), job(2, 100)], [(2, "a")]),
    Case("first come, first served where that is the order", [job(1, 900, 0.0), job(2, 100, 0.1)], [(1, "a")], order=Order.FCFS),
    Case("an idle replica each, one request each, while theta is unknown", [job(1, 10), job(2, 20), job(3, 30)],
         [(1, "a"), (2, "b")], replicas=("a", "b")),
    Case("below theta a replica takes more", [job(1, 60), job(2, 60), job(3, 60)], [(1, "a"), (2, "a")], theta=0.1),
    Case("theta reached: late binding", [job(2, 10)], [], theta=0.1, busy=[job(1, 500)]),
    Case("the least loaded replica", [job(2, 10)], [(2, "b")], replicas=("a", "b"), theta=1.0, busy=[job(1, 500)]),
    Case("no ready replica, no dispatch", [job(1, 10)], [], replicas=()),
    Case("one that must miss its objective goes behind a longer one that need not",
         [job(1, 100, arrived=-5.0), job(2, 300)], [(2, "a")], budget=1.0),
    Case("late work goes when nobody else waits: the replica would idle", [job(1, 100, arrived=-5.0)], [(1, "a")], budget=1.0),
    Case("late work waits while the replica is busy with theta of work", [job(2, 100, arrived=-5.0)], [],
         budget=1.0, theta=0.1, busy=[job(1, 90)]),
    Case("without an objective nobody is late", [job(1, 100, arrived=-500.0), job(2, 300)], [(1, "a")], budget=None),
    Case("the wait behind outstanding work counts against the objective",
         [job(2, 300), job(3, 400)], [], budget=0.5, theta=1.0, busy=[job(1, 600)]),
    Case("work that has been running for a while is nearly done", [job(2, 300, arrived=0.5)], [(2, "a")],
         budget=0.5, theta=1.0, busy=[job(1, 600)], now=0.5),
    Case("the replica that holds the prefix, though another is less loaded", [job(2, 10, affine="b", full=400)], [(2, "b")],
         replicas=("a", "b"), theta=1.0, busy=[job(1, 100, affine="b")]),
    Case("but not past its bound", [job(2, 10, affine="b", full=400)], [(2, "a")],
         replicas=("a", "b"), theta=0.1, busy=[job(1, 100, affine="b")]),
    Case("nor once it has left", [job(2, 10, affine="gone", full=400)], [(2, "a")]),
    Case("aggregated: no more sequences than slots", [job(1, 10), job(2, 10), job(3, 10)], [(1, "a"), (2, "a")],
         theta=9.0, slots=2),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.because)
def test_dispatch(case: Case) -> None:
    queue = PrefillQueue(seconds, order=case.order, ttft_budget=None, theta=1e9, slots=case.slots)
    queue.set_ready(case.replicas)
    for busy in case.busy:
        queue.push(busy)
        assert queue.step(0.0), "the case's own set-up"
    queue.ttft_budget, queue.theta = case.budget, case.theta
    for waiting in case.jobs:
        queue.push(waiting)
    assert queue.step(case.now) == [Dispatch(key, replica) for key, replica in case.sent]


def test_credit_lets_the_late_through_before_on_time_work_ends() -> None:
    """Ten on-time requests earn the credit for one late request of the same size: it need not wait for an idle hour."""
    queue = PrefillQueue(seconds, ttft_budget=1.0)
    queue.set_ready(["a"])
    queue.push(job(0, 100, arrived=-9.0))
    now, order = 0.0, []
    for key in range(1, 14):
        queue.push(job(key, 100, arrived=now))
        queue.push(job(100 + key, 100, arrived=now))  # on-time work never runs out
        for sent in queue.step(now):
            order.append(sent.key)
            queue.drop(sent.key, now + 0.1)
        now += 0.1
    assert 0 in order, "the late one was served"
    assert order.index(0) == 10, "after ten of its own size, and no sooner"


def test_a_retry_goes_elsewhere_at_once_even_past_theta() -> None:
    queue = PrefillQueue(seconds)
    queue.set_ready(["a", "b"])
    for key in (1, 2):
        queue.push(job(key, 100))
    assert {d.replica for d in queue.step(0.0)} == {"a", "b"}
    assert queue.retry(1, 0.1) == "b"


def test_a_retry_returns_to_the_only_replica_or_to_the_line() -> None:
    queue = PrefillQueue(seconds)
    queue.set_ready(["a"])
    queue.push(job(1, 100))
    queue.step(0.0)
    assert queue.retry(1, 0.1) == "a"
    queue.set_ready([])
    assert queue.retry(1, 0.2) is None
    assert queue.waiting() == [1]
    queue.set_ready(["c"])
    assert queue.step(0.3) == [Dispatch(1, "c")]


def test_the_slot_of_an_aggregated_request_outlives_its_prefill() -> None:
    queue = PrefillQueue(seconds, slots=1)
    queue.set_ready(["a"])
    queue.push(job(1, 10))
    queue.push(job(2, 10))
    assert [d.key for d in queue.step(0.0)] == [1]
    queue.prefilled(1, 0.1)
    assert queue.step(0.1) == []
    queue.drop(1, 0.5)
    assert [d.key for d in queue.step(0.5)] == [2]


def test_a_known_key_is_refused() -> None:
    queue = PrefillQueue(seconds)
    queue.push(job(1, 10))
    with pytest.raises(ValueError, match="already known"):
        queue.push(job(1, 10))


def test_late_work_is_reported_per_ready_replica() -> None:
    queue = PrefillQueue(seconds, ttft_budget=1.0)
    queue.set_ready(["a", "b"])
    for key in range(6):
        queue.push(job(key, 1000, arrived=-9.0))
    queue.step(0.0)
    assert queue.late_count == 4
    assert queue.late_seconds() == pytest.approx(2.0)
