"""From a question to an answer: what fits, what serves the load for least, apart or together, and how sure that is.

Estimates order all options (`decide/goodput`); the best of each kind is played and its numbers are moved to the fewest with
which the promise holds in play. The answer names both kinds, so that the choice can be checked.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from steelyard.decide.feasibility.inputs import Side, Targets
from steelyard.decide.feasibility.judge import judge
from steelyard.decide.goodput.candidates import Replica, formats_of, replicas_of
from steelyard.decide.goodput.search import Goal, Option, apart, joint, ordered, together
from steelyard.decide.goodput.workload import Workload
from steelyard.decide.model.calibration import FITTED
from steelyard.decide.model.roofline import Factors
from steelyard.sim.rehearsal import Arrivals, Rehearsed, play, ratios, settled

TOPOLOGIES = ("Disaggregated", "Aggregated")
PLAYED_RATIOS = 2  # of a sweep, on each side of the best
SLOWER = 1.2


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `sides` holds one side for each accelerator; `formats` None: the checkpoint's own and what it can be
    quantized to; `arrivals` plays the load at a rate."""

    sides: tuple[Side, ...]
    formats: tuple[str, ...] | None
    load: Workload
    goal: Goal
    arrivals: Callable[[Workload], Arrivals]
    most: int | None = None  # accelerators
    topologies: tuple[str, ...] = TOPOLOGIES  # that are looked at
    notes: tuple[str, ...] = ()  # of what is not looked at and why


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the sensitivity: what is changed, and the option that is then best."""

    words: str
    option: Option | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it. `chosen` None: nothing serves the load, and `refused` says why."""

    apart: tuple[Option, ...]
    together: tuple[Option, ...]
    played: tuple[Rehearsed, ...]
    chosen: Rehearsed | None
    sweep: tuple[tuple[Option, Rehearsed | None], ...]
    sensitivity: tuple[Change, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...]
    topologies: tuple[str, ...] = TOPOLOGIES  # that were looked at


def answer(question: Question, *, every_ratio: bool = False) -> Answer:
    """Search, play, compare."""
    split, joined = _options(question, None)
    kept = [[option for option in options if _within(option, question)] for options in (split, joined)]
    played = [settled(options[0], question.arrivals(question.load), question.goal) for options in kept if options]
    chosen = _chosen(played, question)
    return Answer(
        apart=tuple(kept[0]),
        together=tuple(kept[1]),
        played=tuple(played),
        chosen=chosen,
        sweep=_sweep(chosen, kept[0], question, every_ratio),
        sensitivity=_sensitivity(question) if chosen else (),
        refused=() if kept[0] or kept[1] else tuple(_why_not(question, split + joined)),
        notes=(*question.notes, *_notes(chosen)),
        topologies=question.topologies,
    )


def _options(question: Question, factors: Factors | None) -> tuple[list[Option], list[Option]]:
    """All sized options of both kinds; roles may lie on different accelerators."""
    replicas = [replica for side in question.sides for replica in _replicas(side, question, factors)]
    return (
        apart(replicas, replicas, question.load, question.goal) if "Disaggregated" in question.topologies else [],
        together(replicas, question.load, question.goal) if "Aggregated" in question.topologies else [],
    )


def _replicas(side: Side, question: Question, factors: Factors | None) -> Iterable[Replica]:
    for other in formats_of(side, question.formats):
        yield from replicas_of(other, question.load, factors)


def _within(option: Option, question: Question) -> bool:
    return question.most is None or option.accelerators <= question.most


def _chosen(played: list[Rehearsed], question: Question) -> Rehearsed | None:
    """The cheapest that keeps the promise in play; where none does, the one that comes nearest."""
    kept = [found for found in played if found.both >= question.goal.attainment and _within(found.option, question)]
    if not kept:
        return max(played, key=lambda found: found.both, default=None)
    best = ordered([found.option for found in kept])[0]
    return next(found for found in kept if found.option is best)


def _sweep(
    chosen: Rehearsed | None, split: list[Option], question: Question, every: bool
) -> tuple[tuple[Option, Rehearsed | None], ...]:
    """Every ratio of the best pair with as many accelerators: estimated all, played near the best or all."""
    if chosen is None or not split:
        return ()
    pair = chosen.option if not chosen.option.aggregated else split[0]
    lines = []
    for counts in ratios(pair, pair.accelerators):
        other = replace(pair, counts=counts)
        lines.append(replace(other, attainment=joint(other, question.load, question.goal)))
    place = next((i for i, line in enumerate(lines) if line.counts == pair.counts), 0)
    if len(lines) > 15:
        lines = lines[max(0, place - 7) : place + 8]
        place = next((i for i, line in enumerate(lines) if line.counts == pair.counts), 0)
    arrivals = question.arrivals(question.load)
    near = range(len(lines)) if every else range(place - PLAYED_RATIOS, place + PLAYED_RATIOS + 1)
    return tuple((line, play(line, arrivals, question.goal) if i in near else None) for i, line in enumerate(lines))


def _sensitivity(question: Question) -> tuple[Change, ...]:
    load, goal = question.load, question.goal
    targets = goal.targets
    changes: list[tuple[str, Question, Factors | None]] = [
        (f"requests × {by:g}", replace(question, load=load.at(load.rate * by)), None) for by in (0.5, 1.5, 2)
    ]
    changes += [(f"prompts × {by:g}", replace(question, load=load.scaled(prompts=by)), None) for by in (0.5, 2)]
    changes += [(f"answers × {by:g}", replace(question, load=load.scaled(answers=by)), None) for by in (0.5, 2)]
    for by in (0.5, 2):
        if targets.ttft is not None:
            other = Targets(targets.ttft * by, targets.tpot)
            changes.append((f"TTFT objective × {by:g}", replace(question, goal=replace(goal, targets=other)), None))
        if targets.tpot is not None:
            other = Targets(targets.ttft, targets.tpot * by)
            changes.append((f"TPOT objective × {by:g}", replace(question, goal=replace(goal, targets=other)), None))
    slower = Factors(
        FITTED.arithmetic / SLOWER,
        FITTED.bandwidth / SLOWER,
        FITTED.launch_seconds * SLOWER,
        FITTED.layer_seconds * SLOWER,
        FITTED.collective_seconds * SLOWER,
    )
    changes.append(("every step 20 % slower", question, slower))
    found = []
    for words, asked, factors in changes:
        split, joined = _options(asked, factors)
        best = ordered([*split[:1], *joined[:1]])
        found.append(Change(words, best[0] if best else None))
    return tuple(found)


def _why_not(question: Question, beyond: list[Option]) -> Iterable[str]:
    """Say what keeps the load from being served."""
    if beyond:
        least = ordered(beyond)[0]
        told = f"the load needs {least.accelerators} accelerators and {question.most} are allowed"
        yield f"{told}; raise the budget or lower the rate"
        return
    for side in question.sides:
        found = judge((side,), None, question.goal.targets)
        yield from (str(finding) for finding in found.refused)
        if found.reach is not None:
            yield from found.reach.problems
        if not found.refused and (found.reach is None or not found.reach.problems):
            yield (
                f"accelerator {side.accelerator}: no format and layout keeps the objectives for {question.goal.attainment:.0%} of"
                " these requests; allow a longer time, shorter prompts, or more accelerators"
            )


def _notes(chosen: Rehearsed | None) -> tuple[str, ...]:
    if chosen is None:
        return ()
    told = {str(finding): None for _, replica in chosen.option.pools for finding in replica.notes}
    return tuple(told)
