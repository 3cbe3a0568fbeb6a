"""Weeks of load in rates: the two Azure-2024 weeks and ServeGen's m-mid fortnight; attainment, hours, and hours over the oracle's.

The law has one default. Each rival's setting is the best of those that `rivals` draws, found on the first day of the very load;
`static` is the cheapest fixed size that hindsight finds for all of it. Same engine, fleet, monitoring every 30 s, 60 s starts.
`agreement` says how far rates lie from requests.
"""

from collections.abc import Sequence
from functools import cache, partial
from math import ceil
from typing import Any, NamedTuple

from steelyard.decide.queue.judge import Objectives
from steelyard.decide.scale import signals as law
from steelyard.sim import fluid, spec, trace
from steelyard.sim.flow import Flow, Lengths
from steelyard.sim.gateway import admitted
from steelyard.sim.oracle import cheapest_share
from steelyard.sim.policies.choose import choose
from steelyard.sim.policies.policy import Static
from steelyard.sim.run import Result
from steelyard.sim.scenario import DECODE, PREFILL, Scenario

from bench.evidence import agreement, data, parallel, rivals
from bench.evidence.engines import CLASS_32B
from bench.evidence.rivals import WANTED
from bench.evidence.settings import ATTAINMENT
from bench.evidence.sizes import Size, cheapest

DAY = 86400.0
BUDGET = 100
START = 60.0  # seconds
EVERY = 30.0  # seconds between two scrapes, and two looks
OBJECTIVES = Objectives(2.0, 0.05)
TUNED = 4  # settings of each rival that are tried
BIN = 300.0  # seconds, of the oracle's needs


class Load(NamedTuple):
    """One load of weeks."""

    name: str
    flow: Flow


def loads() -> list[Load]:
    """Lengths of the weeks are those that were published for them as means, spread as in the requests of 2023."""
    code, talk = (
        [(a.prompt, a.answer) for a in found] for found in (data.azure_code(1.0), data.azure_conversation(1.0))
    )
    rows: list[tuple[str, str, Lengths, float, float, int]] = [
        ("azure-2024 code, 7 days", "azure-2024-code-rate.csv.gz", Lengths.of(code, 2640, 22), 2.0, 1.0, 7),
        ("azure-2024 conv, 7 days", "azure-2024-conv-rate.csv.gz", Lengths.of(talk, 1631, 106), 1.1, 1.0, 7),
        ("servegen m-mid ÷10, 14 days", "servegen-m-mid-rate.csv.gz", Lengths.of(talk, 1155, 211), 1.2, 0.1, 14),
    ]
    found = []
    for name, file, lengths, cv, scale, days in rows:
        table = trace.rates(data.HERE / file)
        found.append(
            Load(name, Flow([(0.0, table[0][1]), *table[1:]], days * DAY, lengths, cv, scale).until(days * DAY))
        )
    return found


def needs(flow: Flow) -> list[tuple[float, float, float]]:
    """(Seconds, prefill replicas, decode replicas) of each row of the table, at the best rates of an engine."""
    lengths = flow.lengths
    context = lengths.prompt + lengths.answer / 2
    held = admitted(CLASS_32B, context, OBJECTIVES.tpot_seconds)
    writes = held / CLASS_32B.step_seconds(held, held * context)
    reads = CLASS_32B.peak_prefill_rate()
    begins = [begin for begin, _ in flow.rates] + [flow.end]
    return [
        (stop - begin, rate * flow.scale * lengths.prompt / reads, rate * flow.scale * lengths.answer / writes)
        for (begin, rate), stop in zip(flow.rates, begins[1:], strict=True)
    ]


def scenario(flow: Flow, initial: dict[str, int] | None = None) -> Scenario:
    """The service at the beginning: as many replicas as the first hour needs, and a third more."""
    if initial is None:
        first = needs(flow)[:8]
        initial = {
            role: max(1, ceil(1.33 * max(row[place] for row in first))) for place, role in ((1, PREFILL), (2, DECODE))
        }
    return Scenario(engine=CLASS_32B, objectives=OBJECTIVES, initial=initial, startup_seconds=START, scrape_seconds=EVERY,
                    tick_seconds=EVERY)  # fmt: skip


def told(given: Scenario) -> law.Service:
    """What policies are told."""
    return spec.told(given, ATTAINMENT, role_change=True, budget=BUDGET)


def play(flow: Flow, policy: str) -> Result:
    """One policy on one load."""
    given = scenario(flow)
    return fluid.play(given, flow, choose(policy, CLASS_32B, told(given)).make())


def tuned(flow: Flow, name: str) -> str:
    """The best setting of a rival on the first day."""
    day = flow.until(DAY)
    tried = {text: play(day, text) for text in rivals.settings(name, TUNED)}

    def rank(text: str) -> tuple[float, float]:
        result = tried[text]
        return -min(WANTED, result.attainment), result.accelerator_hours

    return min(tried, key=rank)


def hindsight(flow: Flow) -> tuple[str, Result] | None:
    """The cheapest fixed size that serves what is wanted, from the mean need of the least such work on. None where a tenth more
    than the peak's need of each role is not enough."""

    @cache
    def played(size: Size) -> Result:
        return fluid.play(scenario(flow, {PREFILL: size.prefill, DECODE: size.decode}), flow, Static())

    rows, work = needs(flow), _least_work(flow.lengths, WANTED)
    mean = [sum(row[0] * row[place] for row in rows) / flow.end * work[place - 1] for place in (1, 2)]
    peak = [max(row[place] for row in rows) for place in (1, 2)]
    least, most = Size(*(max(1, int(need)) for need in mean)), Size(*(ceil(1.1 * need) for need in peak))
    found = cheapest(lambda size: played(size).attainment, WANTED, least, most)
    return None if found is None else (found.policy, played(found))


def bound(flow: Flow, share: float) -> float:
    """Accelerator-hours of the oracle that meets the objectives of the `share` of the requests with the shortest prompts."""
    rows = needs(flow)
    given = scenario(flow).initial
    seconds = 0.0
    for place, least, role in zip((1, 2), _least_work(flow.lengths, share), (PREFILL, DECODE), strict=True):
        bins = _bins([(width, row) for width, *needed in rows for row in (needed[place - 1],)])
        seconds += max(cheapest_share(bins, BIN, START, least, given[role])[0], flow.end)
    return seconds / 3600


def _least_work(lengths: Lengths, share: float) -> tuple[float, float]:
    """The shares of prefill's and of decode's work that the `share` of the requests with the shortest prompts make up."""
    longest = next((k / 100 for k, requests in enumerate(lengths.longest) if requests >= 1 - share), 1.0)
    return 1 - longest, share


def _bins(rows: Sequence[tuple[float, float]]) -> list[float]:
    """A table of (seconds, value) as values of equal bins."""
    found: list[float] = []
    at = 0.0
    for width, value in rows:
        at += width
        found += [value] * (round(at / BIN) - len(found))
    return found


def line(load: Load, name: str) -> dict[str, Any] | None:
    """One policy's row on one load: the law, a rival at its best setting, or the fixed size of hindsight, if there is one."""
    found: tuple[str, Result] | None
    if name == rivals.STATIC:
        found = hindsight(load.flow)
    else:
        text = name if name == rivals.LAW else tuned(load.flow, name)
        found = text, play(load.flow, text)
    if found is None:
        return None
    text, result = found
    least = bound(load.flow, result.attainment)
    return {"load": load.name, "policy": text, "attainment": round(result.attainment, 4),
            "accelerator_hours": round(result.accelerator_hours, 1), "over_oracle": round(result.accelerator_hours / least, 3),
            "role_changes_per_minute": round(result.role_changes_per_minute, 3)}  # fmt: skip


def compare() -> dict[str, Any]:
    """All of it."""
    names = (rivals.LAW, *rivals.SPACE, rivals.STATIC)
    played = parallel.each([partial(line, load, name) for load in loads() for name in names])
    rows = [row for row in played if row is not None]
    both = agreement.compared()
    mine = [row for row in rows if row["policy"] == rivals.LAW]
    ok = both["ok"] and all(row["over_oracle"] >= 1 for row in rows)
    return {"name": "fluid", "ok": ok, "worst": min(row["attainment"] for row in mine), "wanted": WANTED, "rows": rows,
            "agreement": both}  # fmt: skip
