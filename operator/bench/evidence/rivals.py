"""Every run of the law and its rivals behind one router: same engine, queue order and loads, and for each rival the same number
of random draws of its settings, of which five to eight are distinct. The law has one default and no settings; behind our gateway it
alone reads the arrivals of every quarter of a second. `standing` says what to make of them.

`static` is the cheapest fixed size of each trace in hindsight.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from random import Random

from steelyard.sim.scenario import DECODE, PREFILL, Routing

from bench.evidence import oracle, parallel
from bench.evidence.playing import Row, play
from bench.evidence.settings import TRACES, Setting
from bench.evidence.sizes import Size, cheapest

SETTINGS = 8
WANTED = 0.95
LAW, STATIC = "ours", "static"
MOST = 40  # replicas of a role, of a fixed size


def _one_of(*values: float) -> Callable[[Random], float]:
    return lambda random: random.choice(values)


# What may be tuned, and over which values.
SPACE: Mapping[str, Mapping[str, Callable[[Random], float]]] = {
    "hpa-queue": {"target": _one_of(0.5, 1, 2, 4, 8), "window": _one_of(30, 60, 120, 300), "kv_target": _one_of(0.5, 0.7, 0.85)},
    "hpa-utilisation": {"target": _one_of(0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), "window": _one_of(30, 60, 120, 300),
                        "kv_target": _one_of(0.5, 0.7, 0.85)},
    "fixed-ratio": {"tokens_per_second": _one_of(60, 120, 240, 500, 1000), "ratio": _one_of(0.33, 0.66, 1.75, 3, 6),
                    "window": _one_of(30, 60, 120, 300)},
    "token-velocity": {"share": _one_of(0.25, 0.35, 0.5, 0.65, 0.8, 1.0), "window": _one_of(30, 60, 120, 300),
                       "kv_target": _one_of(0.5, 0.7, 0.85)},
    "dynamo-load": {"up_tokens": _one_of(500, 1000, 2000, 4000, 8000), "down_tokens": _one_of(50, 200, 500, 1000)},
}  # fmt: skip


def settings(name: str, count: int = SETTINGS) -> list[str]:
    """`count` random draws of a rival's settings, the same for everybody who asks; what was drawn twice is there once."""
    random = Random(f"frontier {name}")
    drawn = [",".join([name, *(f"{key}={draw(random):g}" for key, draw in SPACE[name].items())]) for _ in range(count)]
    return list(dict.fromkeys(drawn))


def policies(count: int = SETTINGS) -> list[str]:
    """The law, and every setting of every rival."""
    return [LAW, *(text for name in SPACE for text in settings(name, count))]


def behind(router: Routing, traces: Sequence[Setting] = TRACES, count: int = SETTINGS) -> list[Row]:
    """Every run behind one router, and what hindsight would have fixed for each trace."""
    calls: list[Callable[[], Row | None]] = [
        partial(play, trace, policy, router=router) for policy in policies(count) for trace in traces
    ]
    calls += [partial(hindsight, trace, router) for trace in traces]
    return [row for row in parallel.each(calls) if row is not None]


def hindsight(setting: Setting, router: Routing) -> Row | None:
    """The cheapest fixed size that attains what is wanted, from the mean need on. None where `MOST` of each role do not."""

    @cache
    def played(size: Size) -> Row:
        return play(setting, size.policy, router=router)

    mean = oracle.mean_needs(setting, WANTED)
    least = Size(*(max(1, int(mean[role])) for role in (PREFILL, DECODE)))
    found = cheapest(lambda size: float(played(size)["attainment"]), WANTED, least, Size(MOST, MOST))
    return None if found is None else played(found)
