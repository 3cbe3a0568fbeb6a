"""The gateway in the simulator: the very queues of `decide/queue`, fed with the simulator's clock and replicas.

It does what `gateway/router.py` does with real pods: estimates a prompt, queues it, dispatches late, hands off to decode,
learns f(n) from prefills that had a replica to themselves, keeps the quarter-second arrival windows, gives a replica that
was turned from decode to prefill work only once few of its sequences are left, and stops prefilling while decode is backed up.
"""

from collections import OrderedDict
from collections.abc import Sequence as Many
from random import Random

from steelyard.decide.queue.admission import DecodeQueue, Sequence
from steelyard.decide.queue.dispatch import Job, PrefillQueue
from steelyard.decide.queue.estimate import PrefillPrior, PrefillTime, theta_seconds
from steelyard.decide.queue.windows import ArrivalWindows
from steelyard.decide.scale.capacity import ADMITTED_KV_SHARE, ADMITTED_STEP_SHARE
from steelyard.sim.engine import Engine
from steelyard.sim.replica import Replica
from steelyard.sim.requests import Request
from steelyard.sim.router import Depth
from steelyard.sim.scenario import Scenario

CONVERTING_SHARE = 0.1  # of its decode slots that a replica turned to prefill may still have running
REMEMBERED_BLOCKS = 1_000_000


class Gateway:
    """One gateway process."""

    def __init__(self, scenario: Scenario, number: int) -> None:
        engine = scenario.engine_of(scenario.roles[0])
        self._scenario = scenario
        self._time = PrefillTime(PrefillPrior(*engine.prefill))
        self._requests: dict[int, Request] = {}
        self._replicas: dict[str, Replica] = {}
        self._candidates: tuple[Many[Replica], Many[Replica]] = ((), ())
        self._where: OrderedDict[int, str] = OrderedDict()  # prefix block → the replica that was sent it last
        self._random = Random(f"gateway {number} {scenario.seed}")
        self._contexts = [0.0, 0.0]  # weighted count and sum of the contexts handed to decode
        self.slots = self._slots()
        self.windows = ArrivalWindows()
        self._prefill = PrefillQueue(
            self._time.seconds,
            order=scenario.order,
            ttft_budget=scenario.ttft_budget,
            slots=self.slots if scenario.aggregated else None,
        )
        self._decode = DecodeQueue(slots=self.slots, ttft_objective=scenario.objectives.ttft_seconds)

    # --- requests

    def arrive(self, request: Request, now: float) -> None:
        """Estimate, count, queue."""
        noise = self._scenario.estimate_noise
        factor = self._random.lognormvariate(0.0, noise) if noise else 1.0
        affine, held = self._find(request)
        tokens = max(1.0, (request.tokens - held) * factor)
        full = max(1.0, request.tokens * factor)
        budget = self._scenario.ttft_budget
        if budget is None or self._time.seconds(tokens) <= budget:  # else no number of replicas would help it
            self.windows.add(now, tokens)
        self._requests[request.key] = request
        job = Job(request.key, tokens, full, request.arrived, affine)
        if self._decode.backed_up():
            self._prefill.push(job)
            return
        name = self._prefill.offer(job, now)
        if name is not None:
            self._send(request, name, now)
        else:
            self.pump(now)

    def prefilled(self, request: Request, now: float) -> None:
        """Learn from it, and hand it to decode."""
        self._learn(request, now)
        self._prefill.drop(request.key, now)
        self._weigh(request.context)
        name = self._decode.offer(Sequence(request.key, request.context, request.arrived))
        if name is not None:
            self._replicas[name].decode(request, now)

    def answered(self, request: Request, now: float) -> None:
        """Aggregated: its prefill is over, its slot is not."""
        self._learn(request, now)
        self._prefill.prefilled(request.key, now)

    def ended(self, request: Request, now: float) -> None:
        """Free what it held."""
        self._requests.pop(request.key, None)
        self._prefill.drop(request.key, now)
        self._decode.drop(request.key)
        if self._decode.retiring():
            self._refresh()

    def lost(self, request: Request, now: float, *, decoding: bool) -> None:
        """Try it once more elsewhere: prefill anew, or recompute on another decode replica."""
        name = self._decode.retry(request.key) if decoding else self._prefill.retry(request.key, now)
        if name is not None:
            self._compute(request, name, now, decoding=decoding)

    # --- replicas and time

    def use(self, prefill: Many[Replica], decode: Many[Replica], now: float) -> None:
        """These replicas are ready now."""
        self._replicas |= {replica.name: replica for replica in (*prefill, *decode)}
        self._candidates = (prefill, decode)
        self._refresh()
        self.pump(now)

    def retune(self) -> None:
        """The operator's periodic word on how many sequences a decode replica holds within TPOT."""
        self.slots = self._slots()
        self._decode.slots = self.slots
        if self._scenario.aggregated:
            self._prefill.slots = self.slots

    def pump(self, now: float) -> None:
        """Carry out everything that the queues decide now."""
        for dispatch in self._decode.step(now):
            request = self._requests[dispatch.key]
            if request.held_by is None:  # its KV was lost while it waited
                self._compute(request, dispatch.replica, now, decoding=True)
            else:
                self._replicas[dispatch.replica].decode(request, now)
        if self._decode.backed_up():  # finished KV is kept for a lease only
            return
        for dispatch in self._prefill.step(now):
            self._send(self._requests[dispatch.key], dispatch.replica, now)

    def depth(self) -> Depth:
        """What waits in the two queues."""
        return Depth(len(self._prefill), self._prefill.queued_tokens, self._prefill.late_count, len(self._decode))

    def waiting(self) -> list[int]:
        """Keys of those in the two queues."""
        return [*self._prefill.waiting(), *self._decode.waiting()]

    # --- inside

    def _send(self, request: Request, name: str, now: float) -> None:
        for block in request.blocks if self._scenario.prefix_cache_tokens else ():
            self._where[block] = name
            self._where.move_to_end(block)
        while len(self._where) > REMEMBERED_BLOCKS:
            self._where.popitem(last=False)
        self._compute(request, name, now, decoding=False)

    def _compute(self, request: Request, name: str, now: float, *, decoding: bool) -> None:
        self._replicas[name].prefill(request, now, local=decoding or self._scenario.aggregated)
        request.decoding = decoding

    def _learn(self, request: Request, now: float) -> None:
        if self._prefill.alone(request.key):
            self._time.learn(request.tokens, now - request.sent_at)
            self._prefill.theta = theta_seconds(self._time.samples, self._scenario.gateways)

    def _find(self, request: Request) -> tuple[str | None, int]:
        """Where the longest known beginning of a prompt was sent, and its tokens."""
        if not self._scenario.prefix_cache_tokens:
            return None, 0
        for count in range(len(request.blocks), 0, -1):
            name = self._where.get(request.blocks[count - 1])
            if name is not None:
                return name, min(count * self._scenario.prefix_block_tokens, request.tokens - 1)
        return None, 0

    def _refresh(self) -> None:
        prefill, decode = self._candidates
        settled = [r for r in prefill if self._decode.running_on(r.name) <= CONVERTING_SHARE * self.slots]
        self._prefill.set_ready(r.name for r in settled or prefill)
        if not self._scenario.aggregated:
            self._decode.set_ready(r.name for r in decode)

    def _weigh(self, context: int) -> None:
        self._contexts[0] += 0.01 * (1.0 - self._contexts[0])
        self._contexts[1] += 0.01 * (context - self._contexts[1])

    def _slots(self) -> int:
        """What the law has one decode replica hold (`Decision.slots`), at the mean context of the sequences that decode,
        or of those that were handed over lately."""
        scenario = self._scenario
        if scenario.decode_slots is not None:
            here = scenario.decode_slots
        else:
            decode = () if scenario.aggregated else self._candidates[1]
            sequences = sum(r.running + len(r.landing) + len(r.landed) for r in decode)
            handed_over = self._contexts[1] / self._contexts[0] if self._contexts[0] else 0.0
            mean = sum(r.kv for r in decode) / sequences if sequences else handed_over
            engine, tpot = scenario.engine_of(scenario.roles[-1]), scenario.objectives.tpot_seconds
            here = admitted(engine, mean, None if scenario.aggregated else tpot)
        return max(1, here // scenario.gateways)


def admitted(engine: Engine, context: float, tpot_seconds: float | None) -> int:
    """Sequences of that mean context which one replica is let hold, as the law would tell the gateways."""
    if tpot_seconds is None:
        return engine.slots(context, None)
    most = ADMITTED_KV_SHARE * engine.kv_tokens / max(context, 1.0)
    return max(1, min(engine.slots(context, ADMITTED_STEP_SHARE * tpot_seconds), int(most)))
