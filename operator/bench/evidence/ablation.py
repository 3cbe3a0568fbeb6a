"""The law with one part taken out at a time: what each is worth on the five traces, and on the mixes that move."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from steelyard.decide.scale import changes, demand, learning, prefill, split, windows

from bench.evidence import parallel
from bench.evidence.playing import hours, lowest, pair, play
from bench.evidence.rivals import LAW
from bench.evidence.settings import MOVING, TRACES, Setting

SEED = 2  # of the mixes
NEVER = 1e9

Part = Sequence[tuple[Any, str, Any]]

# Which constant or function is replaced by what.
PARTS: Mapping[str, Part] = {
    "as it is": (),
    "no room for bursts": ((prefill.Prefill, "burst", lambda self, bounds, guess, kept: bounds[0]),),
    "bursts ask for more than is kept though it loses nothing": ((prefill.Prefill, "_loses", lambda *_: True),),
    "no room for the mean rate, nor a look at it in the split": ((prefill, "RATE_SHARE", NEVER),),
    "the rate with its noise": ((prefill, "RATE_DOUBT", 0.0),),
    "decode as it is now, not when a start ends": ((demand, "growth", lambda signals, step, start: 0.0),),
    "no feedback": ((learning, "BETA_UP", 0.0), (learning, "BETA_DOWN", 0.0)),
    "surplus given up at once": ((windows, "keep", lambda window, time, need, seconds: ((time, need),)),),
    "surplus kept for one start, not learnt": ((windows, "gained", lambda kept, time, need, spans: -1.0),),
    "surplus kept for two starts, not learnt": ((windows, "gained", lambda kept, time, need, spans: 0.0),),
    "no role changes": ((changes, "LEAST_REPLICAS", NEVER),),
    "decode's reserve even where prefill is short": ((split, "FILL_TIGHT", split.FILL),),
    "decode shrinks without a margin": ((split, "MARGIN", 0.0),),
}  # fmt: skip


@contextmanager
def without(part: Part) -> Iterator[None]:
    """Put replacements in place for a while."""
    with ExitStack() as stack:
        for owner, name, value in part:
            stack.enter_context(patch.object(owner, name, value))
        yield


def compare(traces: Sequence[Setting] = TRACES, mixes: Sequence[Setting] = MOVING[:2]) -> dict[str, Any]:
    """One row a part. It is reported whatever it is; the law as it is comes first."""
    rows = parallel.each([partial(_row, name, part, traces, mixes) for name, part in PARTS.items()])
    return {"name": "ablation", "ok": True, "worst": rows[0]["lowest"], "rows": rows}


def _row(name: str, part: Part, traces: Sequence[Setting], mixes: Sequence[Setting]) -> dict[str, Any]:
    with without(part):
        found = [play(trace, LAW) for trace in traces]
        moving = [play(mix, LAW, seed=SEED) for mix in mixes]
    return {
        "policy": name,
        "lowest": round(lowest(found), 4),
        "accelerator_hours": round(hours(found), 3),
        "traces": {row["load"]: pair(row) for row in (*found, *moving)},
    }
