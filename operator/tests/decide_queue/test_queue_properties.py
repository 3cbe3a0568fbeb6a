"""Laws of both queues together, whatever happens in whatever order.

A request passes prefill, then decode. Every request ends exactly once; nothing goes to a replica that is not ready;
no ready idle replica while somebody waits; the late list drains when idle; the books are empty at the end.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from steelyard.decide.queue.admission import DecodeQueue, Sequence
from steelyard.decide.queue.dispatch import Job, Order, PrefillQueue

NAMES = st.sets(st.sampled_from("abcd"))


class Serving(RuleBasedStateMachine):
    """A gateway without HTTP: two queues, requests that arrive, finish, fail, are cancelled or refused."""

    requests = Bundle("requests")

    @initialize(
        order=st.sampled_from(Order),
        budget=st.none() | st.floats(0.01, 2.0),
        theta=st.floats(0.0, 0.5),
        slots=st.integers(1, 3),
        prefill=NAMES,
        decode=NAMES,
    )
    def start(
        self, order: Order, budget: float | None, theta: float, slots: int, prefill: set[str], decode: set[str]
    ) -> None:
        self.now = 100.0
        self.slots = slots
        self.prefill = PrefillQueue(lambda n: 0.01 + n / 10_000, order=order, ttft_budget=budget, theta=theta)
        self.decode = DecodeQueue(slots=slots, ttft_objective=budget)
        self.ready = {"prefill": prefill, "decode": decode}
        self.prefill.set_ready(prefill)
        self.decode.set_ready(decode)
        self.where: dict[int, str] = {}  # live requests: waiting | prefill | waiting-decode | decode
        self.on: dict[int, str] = {}
        self.retried: set[int] = set()
        self.ends = dict.fromkeys(("completed", "failed", "refused", "cancelled"), 0)
        self.arrived = 0

    def pump(self) -> None:
        for sent in self.prefill.step(self.now):
            assert self.where[sent.key] == "waiting"
            assert sent.replica in self.ready["prefill"], "never to a replica that is not ready"
            self.where[sent.key], self.on[sent.key] = "prefill", sent.replica
        for sent in self.decode.step(self.now):
            assert self.where[sent.key] == "waiting-decode"
            assert sent.replica in self.ready["decode"], "never to a replica that is not ready"
            self.where[sent.key], self.on[sent.key] = "decode", sent.replica

    def end(self, key: int, how: str) -> None:
        del self.where[key]  # raises if it had ended before
        self.ends[how] += 1
        self.prefill.drop(key, self.now)
        self.decode.drop(key)
        self.pump()

    @rule(target=requests, tokens=st.floats(1, 4000), held=st.floats(0, 1), affine=st.none() | st.sampled_from("abcd"))
    def arrive(self, tokens: float, held: float, affine: str | None) -> int:
        self.arrived += 1
        key = self.arrived
        self.where[key] = "waiting"
        self.prefill.push(Job(key, max(1.0, tokens * (1 - held)), tokens, self.now, affine))
        self.pump()
        return key

    @rule(key=requests)
    def progress(self, key: int) -> None:
        """A leg succeeds."""
        if self.where.get(key) == "prefill":
            self.prefill.drop(key, self.now)
            self.where[key] = "waiting-decode"
            self.decode.push(Sequence(key, 100, self.now - 1))
            self.pump()
        elif self.where.get(key) == "decode":
            self.end(key, "completed")

    @rule(key=requests)
    def fail(self, key: int) -> None:
        """A leg fails: a second try for it, then the end."""
        leg = self.where.get(key)
        if leg not in ("prefill", "decode"):
            return
        if key in self.retried:
            self.end(key, "failed")
            return
        self.retried.add(key)
        before = self.on[key]
        replica = self.prefill.retry(key, self.now) if leg == "prefill" else self.decode.retry(key)
        if replica is None:
            assert not self.ready[leg]
            self.where[key] = "waiting" if leg == "prefill" else "waiting-decode"
        else:
            assert replica in self.ready[leg]
            assert replica != before or self.ready[leg] == {before}, "elsewhere, if there is an elsewhere"
            self.on[key] = replica
        self.pump()

    @rule(key=consumes(requests))
    def cancel(self, key: int) -> None:
        if key in self.where:
            self.end(key, "cancelled")

    @rule(key=requests)
    def refuse(self, key: int) -> None:
        if self.where.get(key) in ("waiting", "waiting-decode"):
            self.end(key, "refused")

    @rule(role=st.sampled_from(["prefill", "decode"]), names=NAMES)
    def pods_change(self, role: str, names: set[str]) -> None:
        self.ready[role] = names
        (self.prefill if role == "prefill" else self.decode).set_ready(names)
        self.pump()

    @rule(seconds=st.floats(0.0, 3.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.pump()

    @invariant()
    def every_request_is_somewhere(self) -> None:
        if not hasattr(self, "where"):
            return
        assert self.arrived == sum(self.ends.values()) + len(self.where)
        waiting = [k for k, at in self.where.items() if at == "waiting"]
        assert sorted(self.prefill.waiting()) == sorted(waiting)
        assert sorted(self.decode.waiting()) == sorted(k for k, at in self.where.items() if at == "waiting-decode")

    @invariant()
    def nobody_waits_beside_an_idle_replica(self) -> None:
        if not hasattr(self, "where"):
            return
        busy = {self.on[k] for k, at in self.where.items() if at == "prefill"}
        assert not (self.prefill.waiting() and self.ready["prefill"] - busy)
        running = [self.on[k] for k, at in self.where.items() if at == "decode"]
        free = {name for name in self.ready["decode"] if running.count(name) < self.slots}
        assert not (self.decode.waiting() and free)

    def teardown(self) -> None:
        """Whatever was late or stuck is served once pods are there and time goes on: nothing is left behind."""
        if not hasattr(self, "where"):
            return
        for role, queue in (("prefill", self.prefill), ("decode", self.decode)):
            self.ready[role] = {"a"}
            queue.set_ready({"a"})
        self.pump()
        for _ in range(3 * self.arrived + 3):
            for key in [k for k, at in self.where.items() if at in ("prefill", "decode")]:
                self.progress(key)
        assert not self.where
        assert sum(self.ends.values()) == self.arrived
        assert (len(self.prefill), self.prefill.queued_tokens, self.prefill.outstanding_tokens) == (0, 0, 0)
        assert (len(self.decode), self.decode.queued_tokens, self.decode.outstanding_tokens) == (0, 0, 0)


Serving.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestServing = Serving.TestCase
