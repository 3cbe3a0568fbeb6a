"""Can the objectives be met at all? Bounds that no engine beats: the hardware at its peak, one request alone.

TPOT is at least one decode step of one sequence; TTFT at least one read of the weights, and for each prompt its
arithmetic. So an objective below the bound is unreachable whatever the load; above it, the longest prompt that can be in
time says how far it reaches.
"""

from dataclasses import dataclass

from steelyard.decide.feasibility.findings import milliseconds
from steelyard.decide.feasibility.inputs import Side, Targets
from steelyard.decide.model.calibration import FITTED
from steelyard.decide.model.roofline import Roofline, machine
from steelyard.decide.model.work import work

SHORTEST_PROMPT = 16


@dataclass(frozen=True, slots=True)
class Reach:
    """Bounds in seconds. `prompt`: the longest prompt whose bound meets the TTFT objective; None: not judged."""

    ttft: float
    tpot: float
    prompt: int | None
    problems: tuple[str, ...]

    @property
    def words(self) -> str:
        """What can be reached, in one sentence."""
        said = f"one request alone takes at least {milliseconds(self.ttft)} to its first token"
        said += f" and {milliseconds(self.tpot)} a token"
        return said + (f"; prompts of up to {self.prompt} tokens can be in time" if self.prompt is not None else "")


def replica(side: Side) -> Roofline | None:
    """The roofline of a side; None where the hardware's figures are not known."""
    attention = "fp8" if side.attention == "fp8" else "bf16"
    try:
        rates = machine(side.hardware, side.products, attention)
    except ValueError:
        return None
    return Roofline(rates, work(side.shape, side.format, side.kv_format), side.layout, FITTED)


def reach(prefill: Side, decode: Side, targets: Targets) -> Reach | None:
    """Compare objectives with bounds; for one pool that does both, both sides are the same. None: figures are missing."""
    reading, writing = replica(prefill), replica(decode)
    if reading is None or writing is None:
        return None
    ttft, tpot = reading.bound_prefill([SHORTEST_PROMPT]), writing.bound_decode(1, SHORTEST_PROMPT)
    problems = []
    if targets.ttft is not None and ttft > targets.ttft:
        problems.append(
            f"spec.objectives.timeToFirstToken: {milliseconds(targets.ttft)}: {prefill.accelerator} with "
            f"{prefill.layout.words} needs at least {milliseconds(ttft)} to read the weights once; "
            "use narrower weights, more tensor-parallel ways or a later first token"
        )
    if targets.tpot is not None and tpot > targets.tpot:
        problems.append(
            f"spec.objectives.timePerOutputToken: {milliseconds(targets.tpot)}: {decode.accelerator} with "
            f"{decode.layout.words} needs at least {milliseconds(tpot)} a token; "
            "use narrower weights, more tensor-parallel ways or a longer time per token"
        )
    prompt = None if targets.ttft is None else _longest(reading, targets.ttft, prefill.context)
    return Reach(ttft, tpot, prompt, tuple(problems))


def _longest(reading: Roofline, seconds: float, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if reading.bound_prefill([middle]) <= seconds:
            low = middle
        else:
            high = middle - 1
    return low
