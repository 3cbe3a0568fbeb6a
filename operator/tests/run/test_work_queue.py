"""The work queue's laws, driven through random histories with a clock and dice of our own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from steelyard.run.queue import BACKOFF_LIMIT_SECONDS, WorkQueue

KEYS = st.sampled_from(["a", "b", "c"])


class Histories(RuleBasedStateMachine):
    """Asks, runs and ends in any order; a model remembers what has been asked and not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: WorkQueue[str] = WorkQueue()
        self.now = 0.0
        self.running: set[str] = set()
        self.owed: dict[str, float] = {}  # key → the latest moment at which a run must be due

    @rule(seconds=st.floats(0, 400))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=KEYS, after=st.sampled_from([0.0, 0.5, 5.0]), urgent=st.booleans())
    def ask(self, key: str, after: float, urgent: bool) -> None:
        self.queue.ask(key, self.now, after, urgent)
        limit = self.now + max(after, BACKOFF_LIMIT_SECONDS)
        self.owed[key] = min(self.owed.get(key, limit), limit)

    @rule()
    def take(self) -> None:
        key = self.queue.take(self.now)
        if key is None:
            return
        assert key not in self.running, "one run of a key at a time"
        self.running.add(key)
        self.owed.pop(key, None)

    @rule(again=st.none() | st.floats(1, 300))
    def succeed(self, again: float | None) -> None:
        if self.running:
            key = self.running.pop()
            self.queue.succeeded(key, self.now, again)

    @rule(chance=st.floats(0, 0.999))
    def fail(self, chance: float) -> None:
        if self.running:
            key = self.running.pop()
            wait = self.queue.failed(key, self.now, chance)
            assert 0.5 <= wait <= BACKOFF_LIMIT_SECONDS
            self.owed[key] = self.now + wait

    @invariant()
    def every_ask_is_answered(self) -> None:
        """At the latest moment owed, every idle key that was asked for can be taken."""
        idle = {key: limit for key, limit in self.owed.items() if key not in self.running}
        if idle and self.queue.next_due() is None:
            raise AssertionError(f"asked for {sorted(idle)} and nothing is due")
        for limit in idle.values():
            due = self.queue.next_due()
            assert due is not None
            assert due <= max(limit, self.now)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_asks_during_a_run_fold_into_one_more() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.ask("a", 0)
    assert queue.take(0) == "a"
    for _ in range(5):
        queue.ask("a", 1)
    assert queue.take(1) is None
    queue.succeeded("a", 2)
    assert queue.take(2) == "a"
    queue.succeeded("a", 3)
    assert queue.take(1e9) is None
    assert len(queue) == 0


def test_the_earliest_date_of_a_key_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.ask("a", 0, after=300)
    queue.ask("a", 1, after=0.5)
    queue.ask("a", 1, after=20)
    assert queue.next_due() == 1.5
    assert queue.take(1.4) is None
    assert queue.take(1.5) == "a"


@pytest.mark.parametrize(
    ("urgent", "runs_at_once", "because"),
    [
        (False, False, "our own status write must not turn a failure into a hot loop"),
        (True, True, "the user changed the spec and may have fixed it"),
    ],
)
def test_asks_during_back_off(urgent: bool, runs_at_once: bool, because: str) -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.ask("a", 0)
    queue.take(0)
    wait = queue.failed("a", 0, chance=0.9)
    queue.ask("a", 0.1, urgent=urgent)
    assert (queue.take(0.1) == "a") is runs_at_once, because
    if not runs_at_once:
        assert queue.take(wait) == "a"


@given(st.integers(1, 60), st.floats(0, 0.999))
def test_back_off_doubles_up_to_its_limit(failures: int, chance: float) -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.ask("a", 0)
    now, waits = 0.0, []
    for _ in range(failures):
        assert queue.take(now) == "a"
        waits.append(queue.failed("a", now, chance))
        now += waits[-1]
    assert queue.failures("a") == failures
    assert waits == sorted(waits)
    assert waits[-1] <= BACKOFF_LIMIT_SECONDS
    assert waits[0] == pytest.approx(0.5 + 0.5 * chance)


def test_success_forgets_failures_and_resyncs() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.ask("a", 0)
    queue.take(0)
    queue.failed("a", 0, 0)
    assert queue.take(1) == "a"
    queue.succeeded("a", 1, again_after=300)
    assert queue.failures("a") == 0
    assert queue.next_due() == 301


def test_a_failing_key_does_not_hold_up_others() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.ask("bad", 0)
    queue.take(0)
    queue.failed("bad", 0, 0.5)
    queue.ask("good", 0.1)
    assert queue.take(0.1) == "good"


def test_oldest_wait_counts_what_is_overdue_and_idle() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.ask("late", 0)
    queue.ask("later", 50)
    queue.ask("not yet", 50, after=100)
    assert queue.oldest_wait(60) == 60
    assert queue.take(60) == "late"
    assert queue.oldest_wait(60) == 10


def test_forgotten_keys_do_not_run_and_can_be_asked_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.ask("a", 0)
    queue.forget("a")
    assert queue.take(1) is None
    queue.ask("a", 2)
    assert queue.take(2) == "a"
    queue.forget("a")
    queue.succeeded("a", 3)
    assert len(queue) == 0


def test_ending_what_does_not_run_is_a_fault() -> None:
    queue: WorkQueue[str] = WorkQueue()
    with pytest.raises(ValueError, match="not running"):
        queue.succeeded("a", 0)
