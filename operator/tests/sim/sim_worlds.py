"""Small worlds for the simulator's tests."""

from heapq import heappop
from typing import Any

from hypothesis import strategies as st
from steelyard.decide.queue.judge import Objectives
from steelyard.sim.engine import Batching, Engine
from steelyard.sim.requests import Arrival
from steelyard.sim.scenario import AGGREGATED, DECODE, PREFILL, Failure, Routing, Scenario
from steelyard.sim.world import World

# A small engine: passes of 10–70 ms, steps of 10–30 ms, KV for a handful of requests.
SMALL = Engine(
    prefill=(0.01, 1e-4, 1e-9),
    decode=(0.01, 0.02, 0.0, 1e-4),
    kv_tokens=4000,
    batch_tokens=512,
    max_sequences=8,
    block_tokens=16,
    transfer=(0.002, 1e-6),
)
OBJECTIVES = Objectives(ttft_seconds=0.5, tpot_seconds=0.05)


def scenario(
    prefill: int = 1, decode: int = 1, aggregated: int = 0, engine: Engine = SMALL, **further: Any
) -> Scenario:
    """A scenario with these replicas."""
    roles = {AGGREGATED: aggregated} if aggregated else {PREFILL: prefill, DECODE: decode}
    return Scenario(**{"engine": engine, "objectives": OBJECTIVES, "initial": roles, **further})


class Checked(World):
    """A world that checks the laws of its replicas and its clock at every event."""

    def run(self, arrivals, progress=None):
        self.checks = 0
        self._latest = 0.0
        super().run(arrivals, progress)
        while self._events:  # what clients that left have left behind ends too
            self.now, _, handler, arguments = heappop(self._events)
            handler(self.now, *arguments)
        self._check()

    def passed(self, replica, now):
        super().passed(replica, now)
        self._check()

    def _arrive(self, arrival):
        super()._arrive(arrival)
        self._check()

    def _check(self):
        self.checks += 1
        assert self.now >= self._latest, "the clock ran backwards"
        self._latest = self.now
        record = self.record
        assert record.arrived == record.ended + len(self.requests)
        capacity = self.scenario.capacity
        assert capacity is None or len(self.fleet.members) <= capacity
        for member in self.fleet.members:
            replica = member.replica
            assert 0 <= replica.kv <= replica.engine.kv_tokens, f"{replica.name} holds {replica.kv} KV tokens"
            assert replica.kv <= replica.kv_by(self.now) <= replica.engine.kv_tokens
            assert 0 <= replica.running <= replica.engine.max_sequences
            assert replica.outstanding == sum(q.left for q in replica.waiting) + (
                replica._pass[1] if replica._pass else 0
            )


arrivals = st.lists(
    st.builds(
        lambda gap, prompt, answer: (gap, prompt, answer),
        st.sampled_from([0.0, 0.001, 0.02, 0.3, 2.0]),
        st.integers(1, 1500),
        st.integers(1, 200),
    ),
    min_size=1,
    max_size=60,
).map(lambda rows: [Arrival(sum(gap for gap, _, _ in rows[: i + 1]), p, a) for i, (_, p, a) in enumerate(rows)])

scenarios = st.builds(
    lambda shape, batching, routing, gateways, startup, failures, seed, tokens, patience: scenario(
        **shape,
        engine=Engine(
            prefill=SMALL.prefill,
            decode=SMALL.decode,
            kv_tokens=tokens,
            batch_tokens=512,
            max_sequences=8,
            transfer=SMALL.transfer,
            batching=batching,
            answers_at_prefill=seed % 2 == 0,
        ),
        routing=routing,
        gateways=gateways,
        startup_seconds=startup,
        failures=tuple(Failure(at, role if "aggregated" not in shape else AGGREGATED) for at, role in failures),
        seed=seed,
        client_timeout_seconds=patience,
    ),
    st.sampled_from(
        [{"prefill": 1, "decode": 1}, {"prefill": 2, "decode": 1}, {"prefill": 1, "decode": 3}, {"aggregated": 2}]
    ),
    st.sampled_from(list(Batching)),
    st.sampled_from(list(Routing)),
    st.integers(1, 2),
    st.sampled_from([0.0, 1.0, 10.0]),
    st.lists(st.tuples(st.sampled_from([0.05, 0.5, 1.0, 3.0]), st.sampled_from([PREFILL, DECODE])), max_size=3),
    st.integers(0, 1000),
    st.sampled_from([1800, 4000, 50_000]),
    st.sampled_from([None, 0.05, 0.4, 2.0, 30.0]),
)
