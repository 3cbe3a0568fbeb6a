"""From a load and objectives to the fewest accelerators: which replicas, how many of each role, apart or together.

1. For every accelerator, format and layout that feasibility lets pass, the rate that one replica of a role serves within the
   objectives, from a pool of a few of them (`REFERENCE`), since waiting falls as pools grow.
2. Every pair of a prefill and a decode replica that may hand over; per request they cost a_P/R_P + a_D/R_D accelerators.
3. For the best pairs the whole numbers: the fewest accelerators, or the least money where all prices are known, whose joint
   attainment is what was promised. The two roles' losses are taken as independent.
4. The same for one pool that does both.

The estimates order the options; `sim/rehearsal.py` then plays the best of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from steelyard.decide.feasibility.inputs import Pair, Targets
from steelyard.decide.feasibility.pairing import pairs
from steelyard.decide.goodput.candidates import Replica
from steelyard.decide.goodput.pools import (
    aggregated_attainment,
    decode_attainment,
    held,
    most_rate,
    prefill_attainment,
)
from steelyard.decide.goodput.workload import Workload

REFERENCE = 4  # replicas of a pool whose rate is taken for each of them
LARGEST = 1024  # replicas of a role
KEPT = 8  # pairs whose whole numbers are looked for
GATEWAY_SECONDS = 0.005  # of the gateway and the network, beside the transfer


@dataclass(frozen=True, slots=True)
class Goal:
    """What is promised: objectives, the share of requests that must meet both (0…1), and what KV is moved by."""

    targets: Targets
    attainment: float
    connector: str = "nixl"
    network_bytes: float = 25e9  # bytes per second and accelerator that carry KV between replicas


@dataclass(frozen=True, slots=True)
class Option:
    """A sized deployment. Aggregated: `prefill` and `decode` are the same replica, and `counts` holds one number."""

    prefill: Replica
    decode: Replica
    counts: tuple[int, ...]
    attainment: float  # estimated
    goodput: float  # the highest rate that these replicas serve within the objectives, per accelerator

    @property
    def aggregated(self) -> bool:
        """Whether one pool does both."""
        return len(self.counts) == 1

    @property
    def accelerators(self) -> int:
        """All accelerators."""
        return sum(count * replica.accelerators for count, replica in self.pools)

    @property
    def pools(self) -> tuple[tuple[int, Replica], ...]:
        """Each pool's number of replicas, and its replica."""
        replicas = (self.decode,) if self.aggregated else (self.prefill, self.decode)
        return tuple(zip(self.counts, replicas, strict=True))

    @property
    def cost(self) -> float | None:
        """Price of an hour; None: some price is not known."""
        if any(replica.price is None for _, replica in self.pools):
            return None
        return sum(count * (replica.price or 0.0) for count, replica in self.pools)

    @property
    def ratio(self) -> str:
        """prefill:decode in replicas, or the number of the one pool."""
        return ":".join(map(str, self.counts))


def joint(option: Option, load: Workload, goal: Goal) -> float:
    """Estimated share of requests that meet both objectives."""
    if option.aggregated:
        return aggregated_attainment(option.decode.engine, option.counts[0], load, goal.targets)
    prefill, decode = option.counts
    written = decode_attainment(option.decode.engine, decode, load, goal.targets.tpot)
    return written and written * _read(option, prefill, decode, load, goal)


def _read(option: Option, prefill: int, decode: int, load: Workload, goal: Goal) -> float:
    return prefill_attainment(
        option.prefill.engine, prefill, load, goal.targets.ttft, _handoff(option, decode, load, goal)
    )


def _handoff(option: Option, decode: int, load: Workload, goal: Goal) -> float:
    """Seconds from the end of prefill to the first token out of decode: half a step, a step, and the way of the KV."""
    batch = max(1.0, min(held(option.decode.engine, decode, load) / decode, option.decode.engine.max_sequences))
    step = option.decode.engine.model.decode_step_seconds(batch, load.context)
    moved = load.lengths.prompt * option.prefill.engine.model.kv_bytes_per_token
    return GATEWAY_SECONDS + 1.5 * step + moved / (goal.network_bytes * option.prefill.accelerators)


def apart(prefills: Sequence[Replica], decodes: Sequence[Replica], load: Workload, goal: Goal) -> list[Option]:
    """Sized pairs of prefill and decode replicas, the best first."""
    reading = [(replica, _reading_rate(replica, load, goal)) for replica in prefills]
    writing = [(replica, _writing_rate(replica, load, goal)) for replica in decodes]
    found = []
    for one, read in reading:
        for other, written in writing:
            if read > 0 and written > 0 and _may_pair(one, other, goal):
                found.append(
                    (
                        one.accelerators / read + other.accelerators / written,
                        _money(one, read, other, written),
                        one,
                        other,
                    )
                )
    priced = all(money is not None for _, money, _, _ in found)
    found.sort(key=lambda item: (item[1] if priced else item[0], item[0]))
    sized = [_sized_pair(one, other, load, goal) for _, _, one, other in found[:KEPT]]
    return ordered([option for option in sized if option is not None])


def together(replicas: Sequence[Replica], load: Workload, goal: Goal) -> list[Option]:
    """Sized pools of replicas that do both, the best first."""
    return ordered([option for replica in replicas if (option := _sized_pool(replica, load, goal)) is not None])


def ordered(options: Sequence[Option]) -> list[Option]:
    """The least money first where every price is known, else the fewest accelerators; of equals the higher goodput."""
    priced = all(option.cost is not None for option in options)
    return sorted(options, key=lambda o: (o.cost if priced else o.accelerators, o.accelerators, -o.goodput))


def _reading_rate(replica: Replica, load: Workload, goal: Goal) -> float:
    """Requests per second of one prefill replica in a pool of a few."""
    step = replica.engine.model.decode_step_seconds(1, load.context)
    return most_rate(
        lambda rate: prefill_attainment(replica.engine, REFERENCE, load.at(rate), goal.targets.ttft, step), goal.attainment, 1.0
    ) / REFERENCE  # fmt: skip


def _writing_rate(replica: Replica, load: Workload, goal: Goal) -> float:
    """Requests per second of one decode replica in a pool of a few."""
    return most_rate(
        lambda rate: decode_attainment(replica.engine, REFERENCE, load.at(rate), goal.targets.tpot), goal.attainment, 1.0
    ) / REFERENCE  # fmt: skip


def _money(one: Replica, read: float, other: Replica, written: float) -> float | None:
    if one.price is None or other.price is None:
        return None
    return one.price / read + other.price / written


def _may_pair(one: Replica, other: Replica, goal: Goal) -> bool:
    if one.side.format != other.side.format:
        return False  # one service has one checkpoint
    return not any(finding.refused for finding in pairs(Pair(one.side, other.side, goal.connector)))


def _sized_pair(one: Replica, other: Replica, load: Workload, goal: Goal) -> Option | None:
    """The cheapest whole numbers that keep the promise: for each number of prefill replicas the fewest decode replicas."""
    least = max(1, ceil(load.rate * _mean_pass(one, load) / one.engine.lanes - 1e-9))
    best: tuple[float, tuple[int, int], float] | None = None
    tries = 0
    for prefill in range(least, LARGEST):
        decode = _fewest(lambda n, p=prefill: joint(Option(one, other, (p, n), 0, 0), load, goal), goal.attainment)  # type: ignore[misc]
        if decode is not None:
            size = prefill * _weight(one, other, one) + decode * _weight(one, other, other)
            if best is None or size < best[0]:
                attained = joint(Option(one, other, (prefill, decode), 0, 0), load, goal)
                best, tries = (size, (prefill, decode), attained), 0
                continue
        tries += 1
        if (best is not None and tries > 2) or tries > max(8, least):
            break
    if best is None:
        return None
    return _with_goodput(Option(one, other, best[1], best[2], 0.0), load, goal)


def _weight(one: Replica, other: Replica, role: Replica) -> float:
    """What a replica counts: its price where both are known, else its accelerators."""
    priced = one.price is not None and other.price is not None
    return float(role.price or 0.0) if priced else float(role.accelerators)


def _mean_pass(replica: Replica, load: Workload) -> float:
    return sum(replica.engine.model.prefill_seconds([prompt]) for prompt, _ in load.lengths.pairs) / len(
        load.lengths.pairs
    )


def _sized_pool(replica: Replica, load: Workload, goal: Goal) -> Option | None:
    count = _fewest(lambda n: joint(Option(replica, replica, (n,), 0, 0), load, goal), goal.attainment)
    if count is None:
        return None
    attained = joint(Option(replica, replica, (count,), 0, 0), load, goal)
    return _with_goodput(Option(replica, replica, (count,), attained, 0.0), load, goal)


def _fewest(attained: Callable[[int], float], wanted: float) -> int | None:
    """The fewest replicas with which attainment, which grows with them, is as wanted; None where no number suffices."""
    if attained(LARGEST) < wanted:
        return None
    high = 1
    while attained(high) < wanted:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if attained(middle) >= wanted else (middle, high)
    return high


def _with_goodput(option: Option, load: Workload, goal: Goal) -> Option:
    rate = most_rate(lambda r: joint(option, load.at(r), goal), goal.attainment, max(load.rate, 1e-3))
    return Option(option.prefill, option.decode, option.counts, option.attainment, rate / option.accelerators)
