"""The answer of `steelyard plan` as plain data and as tables."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from steelyard.cli.plan_question import Planned
from steelyard.decide.feasibility.findings import gigabytes, milliseconds
from steelyard.decide.goodput.candidates import Replica
from steelyard.decide.goodput.search import Option
from steelyard.sim.planner import Answer
from steelyard.sim.rehearsal import Rehearsed

SENSITIVITY_COLUMNS = ("if", "accelerators (estimated)", "", "replicas", "decode")
SHOWN = 5  # options of each kind
OPTION_COLUMNS = (
    "",
    "accelerator",
    "weights",
    "prefill",
    "decode",
    "replicas",
    "acc.",
    "req/s per acc.",
    "$ / h",
    "estimated",
    "played",
)


def figures(question: Planned, found: Answer) -> dict[str, Any]:
    """Everything, for programs. Times in seconds, sizes in bytes."""
    asked = question.question
    load, goal = asked.load, asked.goal
    return {
        "model": question.model,
        "parameters": question.shape.parameters,
        "load": {"rate": load.rate, "prompt_tokens": _r(load.lengths.prompt), "output_tokens": _r(load.lengths.answer)},
        "objectives": {"ttft": goal.targets.ttft, "tpot": goal.targets.tpot, "attainment": goal.attainment},
        "chosen": _played(found.chosen) if found.chosen else None,
        "played": [_played(one) for one in found.played],
        "disaggregated": [_option(one) for one in found.apart[:SHOWN]],
        "aggregated": [_option(one) for one in found.together[:SHOWN]],
        "winner": winner(found),
        "ratios": [
            {"ratio": line.ratio, "estimated": _r(line.attainment), "played": _r(played.both) if played else None}
            for line, played in found.sweep
        ],
        "sensitivity": [
            {"change": change.words, **(_option(change.option) if change.option else {"accelerators": None})}
            for change in found.sensitivity
        ],
        "memory": {role: _memory(replica) for role, replica in _roles(found)},
        "bounds": {role: _bounds(replica, found) for role, replica in _roles(found)},
        "notes": list(found.notes),
    }


def winner(found: Answer) -> str:
    """Say whether reading and writing apart or together wins, and by how much."""
    split = next((one for one in found.played if not one.option.aggregated), None)
    joined = next((one for one in found.played if one.option.aggregated), None)
    if split is None or joined is None:
        only = split or joined
        kind = "one pool" if only is joined else "prefill and decode apart"
        if only and len(found.topologies) == 1:
            return f"only {kind} was looked at: the note says why"
        return f"only {kind} serves this load within the objectives" if only else "nothing serves this load"
    a, b = split.option.accelerators, joined.option.accelerators
    if a == b:
        return f"a draw: apart ({split.option.ratio}) and together ({joined.option.ratio}) both take {a} accelerators"
    less, more, name = (a, b, "prefill and decode apart") if a < b else (b, a, "one pool that does both")
    count = "1 accelerator" if less == 1 else f"{less} accelerators"
    return f"{name} wins: {count} against {more} ({1 - less / more:.0%} fewer)"


def show(question: Planned, found: Answer, console: Console) -> None:
    """Print everything."""
    asked = question.question
    load, goal = asked.load, asked.goal
    wanted = ", ".join(
        f"{name} {milliseconds(value)}"
        for name, value in (("TTFT", goal.targets.ttft), ("TPOT", goal.targets.tpot))
        if value
    )
    say(console, f"{question.model}: {question.shape.parameters / 1e9:.3g} billion weights, {question.shape.words}")
    lengths = f"{load.lengths.prompt:.0f} + {load.lengths.answer:.0f} tokens"
    say(console, f"{load.rate:g} requests/s of {lengths}; {wanted} for {goal.attainment:.0%}\n")
    console.print(options_table(found))
    say(console, f"\n{winner(found)}\n")
    console.print(memory_table(found))
    if found.sweep:
        console.print()
        console.print(sweep_table(found))
    console.print()
    console.print(sensitivity_table(found))
    for note in found.notes:
        say(console, f"note: {note}")
    say(
        console,
        "estimated: by queueing, first come first served; played: by the simulator with the gateway's own queues."
        " Times are rooflines calibrated on measured deployments, of which half lie within 17 % of TPOT.",
        dim=True,
    )


def say(console: Console, text: str, *, dim: bool = False) -> None:
    """Print a line as it is."""
    console.print(text, style="dim" if dim else "", highlight=False, markup=False)


def option_rows(found: Answer) -> list[tuple[str, ...]]:
    """Rows of both kinds, those that were played with their final numbers."""
    rows = []
    for kind, options in (("apart", found.apart), ("together", found.together)):
        played = next((one for one in found.played if one.option.aggregated == (kind == "together")), None)
        if played is not None:
            mark = "→" if played is found.chosen else " "
            rows.append(_row(f"{mark} {kind}", played.option, f"{played.both:.1%}", estimate=""))
        rows += [_row(f"  {kind}", option, "", f"{option.attainment:.1%}") for option in options[1:SHOWN]]
    return rows


def _row(name: str, option: Option, played: str, estimate: str) -> tuple[str, ...]:
    side, other = option.prefill.side, option.decode.side
    hardware = (
        side.accelerator if side.accelerator == other.accelerator else f"{side.accelerator} + {other.accelerator}"
    )
    return (
        name,
        hardware,
        other.format if other.format != "none" else "16 bit",
        "" if option.aggregated else option.prefill.words,
        option.decode.words,
        option.ratio,
        str(option.accelerators),
        f"{option.goodput:.3g}",
        f"{option.cost:.2f}" if option.cost is not None else "–",
        estimate,
        played,
    )


def options_table(found: Answer) -> Table:
    """Which deployments serve the load."""
    return table(OPTION_COLUMNS, option_rows(found), left=5)


def memory_table(found: Answer) -> Table:
    """Memory of one accelerator by part, and bounds, of what was chosen."""
    columns = ("one accelerator of", "weights", "other", "KV", "KV tokens of a replica", "TTFT ≥", "TPOT ≥")
    rows = []
    for role, replica in _roles(found):
        counted, bounds = replica.memory, _bounds(replica, found)
        rows.append(
            (
                role,
                gigabytes(counted.weights),
                gigabytes(counted.fixed - counted.weights),
                gigabytes(counted.left),
                f"{replica.engine.kv_tokens:,.0f}",
                milliseconds(bounds["ttft"]),
                milliseconds(bounds["tpot"]),
            )
        )
    return table(columns, rows, left=1)


def sweep_table(found: Answer) -> Table:
    """Attainment by ratio with the same accelerators."""
    rows = [
        (
            line.ratio,
            f"{line.attainment:.1%}",
            *((f"{one.ttft:.1%}", f"{one.tpot:.1%}", f"{one.both:.1%}") if one else ("", "", "")),
        )
        for line, one in found.sweep
    ]
    return table(("prefill:decode", "estimated", "TTFT met", "TPOT met", "both, played"), rows, left=1)


def sensitivity_rows(found: Answer) -> list[tuple[str, ...]]:
    """What it takes when something changes, by estimate."""
    rows: list[tuple[str, ...]] = []
    for change in found.sensitivity:
        option = change.option
        if option is None:
            rows.append((change.words, "not reachable", "", "", ""))
            continue
        side = option.decode.side
        replica = f"{side.format if side.format != 'none' else '16 bit'}, {option.decode.words}"
        kind = "together" if option.aggregated else "apart"
        rows.append((change.words, str(option.accelerators), kind, option.ratio, replica))
    return rows


def sensitivity_table(found: Answer) -> Table:
    """The same as a table."""
    return table(SENSITIVITY_COLUMNS, sensitivity_rows(found), left=1)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> Table:
    """A table without borders, the first columns to the left."""
    made = Table(box=None, pad_edge=False)
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def _roles(found: Answer) -> list[tuple[str, Replica]]:
    if found.chosen is None:
        return []
    option = found.chosen.option
    return (
        [("aggregated", option.decode)]
        if option.aggregated
        else [("prefill", option.prefill), ("decode", option.decode)]
    )


def _bounds(replica: Replica, found: Answer) -> dict[str, float]:
    """What the hardware's peak allows for one mean request alone."""
    model = replica.roofline
    context = max(
        16.0, replica.engine.kv_tokens and found.chosen.option.decode.side.context / 2 if found.chosen else 16.0
    )
    return {"ttft": _r(model.bound_prefill([16])), "tpot": _r(model.bound_decode(1, context))}


def _memory(replica: Replica) -> dict[str, float]:
    counted = replica.memory
    return {
        "weights": round(counted.weights),
        "activations": round(counted.activations),
        "workspace": round(counted.workspace),
        "kv": round(counted.left),
        "available": round(counted.available),
        "kv_tokens_of_replica": int(replica.engine.kv_tokens),
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "topology": "Aggregated" if option.aggregated else "Disaggregated",
        "accelerators_named": list(dict.fromkeys(r.side.accelerator for _, r in option.pools)),
        "weights": option.decode.side.format,
        "replicas": option.ratio,
        "layouts": [replica.words for _, replica in option.pools],
        "accelerators": option.accelerators,
        "goodput_per_accelerator": _r(option.goodput),
        "cost_per_hour": None if option.cost is None else _r(option.cost),
        "estimated_attainment": _r(option.attainment),
    }


def _played(found: Rehearsed) -> dict[str, Any]:
    return {
        **_option(found.option),
        "attainment": _r(found.both),
        "ttft_met": _r(found.ttft),
        "tpot_met": _r(found.tpot),
        "ttft_p50": found.ttft_p50,
        "ttft_p99": found.ttft_p99,
        "tpot_p50": found.tpot_p50,
        "tpot_p99": found.tpot_p99,
    }


def _r(value: float) -> float:
    return float(f"{value:.5g}")
