"""The rivals, from their published rules: each gets the same engine, router, queue order and metrics as the law.

| name            | prefill                                               | after                                   |
|-----------------|-------------------------------------------------------|-----------------------------------------|
| hpa-queue       | waiting requests a replica against a target           | HorizontalPodAutoscaler, KEDA recipes   |
| hpa-utilisation | busy share against a target                           | the same, on its usual first metric     |
| fixed-ratio     | generated tokens/s a replica; decode at a fixed ratio | HeteroScale (arXiv 2508.19559)          |
| token-velocity  | arriving tokens/s over what a replica can prefill     | TokenScale (arXiv 2512.03416), its core |
| dynamo-load     | ±1 on outstanding tokens, held while anything starts  | Dynamo 1.4's planner in load mode       |

Decode, where a rule does not say: KV use against a target, and sequences against the engine's limit. Scale-down passes a
stabilisation window. HPA's tolerance is 10 %, its growth per tick at most the double or 4.
"""

from dataclasses import dataclass, field
from math import ceil

from steelyard.sim.engine import Engine
from steelyard.sim.policies.policy import Action, Bounds, Numbers, Stabilised
from steelyard.sim.watch import Scrape, Watch

TOLERANCE = 0.1


@dataclass(slots=True)
class Rival:
    """What the rivals share: bounds, windows, and how decode is sized."""

    engine: Engine
    bounds: Bounds = field(default_factory=Bounds)
    window: float = 60.0
    kv_target: float = 0.7
    ttft_attainment: float = 0.9  # below which fixed-ratio's latency feedback acts
    _front: Stabilised = field(init=False)
    _back: Stabilised = field(init=False)

    def __post_init__(self) -> None:
        """Begin with empty windows."""
        self._front, self._back = Stabilised(self.window), Stabilised(self.window)

    def tick(self, now: float, watch: Watch) -> Action | None:
        """Size both roles, stabilise, keep the bounds."""
        newest = watch.newest
        if newest is None:
            return None
        numbers = Numbers.of(watch)
        front = self.prompts(now, watch, newest, numbers)
        if front is None:
            return None
        back = self.sequences(watch, newest, numbers, front)
        if numbers.front == numbers.back:
            wanted = self._front(now, self.bounds.clamp(numbers.front, max(front, back)), numbers.all[numbers.front])
            return Action(self.bounds.within_budget({numbers.front: wanted}))
        sizes = {
            numbers.front: self._front(now, self.bounds.clamp(numbers.front, front), numbers.all[numbers.front]),
            numbers.back: self._back(now, self.bounds.clamp(numbers.back, back), numbers.all[numbers.back]),
        }
        return Action(self.bounds.within_budget(sizes))

    def prompts(self, now: float, watch: Watch, newest: Scrape, numbers: Numbers) -> int | None:
        """Replicas that prefill needs; None: hold everything."""
        raise NotImplementedError

    def sequences(self, watch: Watch, newest: Scrape, numbers: Numbers, front: int) -> int:
        """Replicas that decode needs."""
        decoding = [pod for pod in newest.pods.values() if pod.role == numbers.back]
        kv = sum(pod.kv_use for pod in decoding)
        held = sum(pod.running + pod.waiting for pod in decoding) + newest.depth.decode
        share = min(0.95, self.kv_target + 0.15)
        return ceil(max(kv / self.kv_target, held / (self.engine.max_sequences * share)) - 1e-9)

    @staticmethod
    def by_hpa(ready: int, everything: int, value: float, target: float) -> int:
        """The HorizontalPodAutoscaler's rule on a mean value per replica."""
        ratio = value / target
        wanted = everything if abs(ratio - 1) <= TOLERANCE else ceil(max(1, ready) * ratio)
        return min(wanted, max(2 * everything, everything + 4))


@dataclass(slots=True)
class HpaQueue(Rival):
    """Waiting requests per prefill replica."""

    target: float = 2.0

    def prompts(self, now: float, watch: Watch, newest: Scrape, numbers: Numbers) -> int | None:
        """Apply HPA to the queue."""
        ready = numbers.ready[numbers.front]
        waiting = newest.depth.prefill + sum(p.waiting for p in newest.pods.values() if p.role == numbers.front)
        return self.by_hpa(ready, numbers.all[numbers.front], waiting / max(1, ready), self.target)


@dataclass(slots=True)
class HpaUtilisation(Rival):
    """Busy share of prefill replicas, smoothed."""

    target: float = 0.5
    _smooth: float = 0.0
    _busy: dict[str, float] = field(default_factory=dict)
    _at: float = 0.0

    def prompts(self, now: float, watch: Watch, newest: Scrape, numbers: Numbers) -> int | None:
        """Apply HPA to the share of time spent in passes since the last scrape."""
        pods = [pod for pod in newest.pods.values() if pod.role == numbers.front]
        span = newest.at - self._at
        if span > 0 and pods:
            busy = sum(pod.busy_seconds - self._busy.get(pod.name, 0.0) for pod in pods) / (span * len(pods))
            self._smooth += 0.4 * (min(1.0, busy) - self._smooth)
            self._busy, self._at = {pod.name: pod.busy_seconds for pod in pods}, newest.at
        return self.by_hpa(numbers.ready[numbers.front], numbers.all[numbers.front], self._smooth, self.target)


@dataclass(slots=True)
class FixedRatio(Rival):
    """Decode tokens per second drive both roles; a drop in TTFT attainment adds 10 or 20 %."""

    tokens_per_second: float = 500.0  # generated, for each prefill replica
    ratio: float = 4.0  # prefill replicas for each decode replica
    rate_window: float = 15.0

    def prompts(self, now: float, watch: Watch, newest: Scrape, numbers: Numbers) -> int | None:
        """Proportional control with hysteresis and negative feedback of latency."""
        everything = numbers.all[numbers.front]
        wanted = watch.rate("generated", self.rate_window) / self.tokens_per_second
        judged = watch.increase("ended", 30)
        missed = 1 - watch.increase("ttft_met", 30) / judged if judged > 20 else 0.0
        if missed > 2 * (1 - self.ttft_attainment):
            wanted = max(wanted, everything * 1.2)
        elif missed > 1 - self.ttft_attainment:
            wanted = max(wanted, everything * 1.1)
        return everything if abs(wanted - everything) <= TOLERANCE * everything else ceil(wanted - 1e-9)

    def sequences(self, watch: Watch, newest: Scrape, numbers: Numbers, front: int) -> int:
        """Keep the ratio."""
        return ceil(self.bounds.clamp(numbers.front, front) / self.ratio - 1e-9)


@dataclass(slots=True)
class TokenVelocity(Rival):
    """Tokens that arrive over the velocity of each stage."""

    share: float = 0.8  # of the best prefill rate
    decode_tokens_per_second: float | None = None
    rate_window: float = 15.0

    def prompts(self, now: float, watch: Watch, newest: Scrape, numbers: Numbers) -> int | None:
        """Uncached tokens per second over what a replica can compute."""
        return ceil(watch.rate("uncached_tokens", self.rate_window) / (self.share * self.engine.peak_prefill_rate()))

    def sequences(self, watch: Watch, newest: Scrape, numbers: Numbers, front: int) -> int:
        """Generated tokens per second over what a replica can generate, and not less than KV asks for."""
        least = Rival.sequences(self, watch, newest, numbers, front)
        if self.decode_tokens_per_second is None:
            return least
        return max(least, ceil(watch.rate("generated", self.rate_window) / self.decode_tokens_per_second))


@dataclass(slots=True)
class DynamoLoad(Rival):
    """One replica up or down a decision; hold while anything starts."""

    up_tokens: float = 4000.0
    down_tokens: float = 500.0
    up_kv: float = 0.7
    down_kv: float = 0.3

    def tick(self, now: float, watch: Watch) -> Action | None:
        """Compare every replica with both thresholds."""
        newest = watch.newest
        numbers = Numbers.of(watch)
        if newest is None or numbers.ready != numbers.all:
            return None
        sizes = dict(numbers.all)
        queued = newest.depth.prefill_tokens / max(1, numbers.ready[numbers.front])
        loads = [pod.outstanding + queued for pod in newest.pods.values() if pod.role == numbers.front]
        uses = [pod.kv_use for pod in newest.pods.values() if pod.role == numbers.back]
        for role, values, up, down in (
            (numbers.back, uses, self.up_kv, self.down_kv),
            (numbers.front, loads, self.up_tokens, self.down_tokens),
        ):
            size = numbers.all[role]
            if values and max(values) > up:
                sizes[role] = size + 1
            elif values and size > 1 and all(value * size / (size - 1) < down for value in values):
                sizes[role] = size - 1
            sizes[role] = self.bounds.clamp(role, sizes[role])
        return Action(self.bounds.within_budget(sizes))
