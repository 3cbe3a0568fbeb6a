"""Has each number format a kernel here, and is the checkpoint in the format that the service says?"""

from collections.abc import Iterator

from steelyard.api.reasons import Reason
from steelyard.catalog import caches
from steelyard.catalog.versions import capability
from steelyard.decide.feasibility.findings import Finding
from steelyard.decide.feasibility.inputs import COMPUTES_NOTHING, Side

WIDE = ("none", "auto")  # of a KV cache: every engine has 16 bits
ATTENTION_FP8_FROM = (9, 0)  # compute capability: FlashAttention 3


def numbers(side: Side) -> Iterator[Finding]:
    """Weights with activations, then the KV cache, then attention."""
    yield from _checkpoint(side)
    yield from _weights(side)
    yield from _cache(side)
    generation = capability(side.hardware.compute_capability)
    if side.attention == "fp8" and side.hardware.vendor == "nvidia" and generation and generation < ATTENTION_FP8_FROM:
        problem = f"attention in fp8 needs compute capability 9.0, and {_hardware(side)}; use auto"
        yield Finding(Reason.FORMAT_NOT_SUPPORTED, side.place("attention"), "fp8", problem)


def _checkpoint(side: Side) -> Iterator[Finding]:
    if side.source != "Checkpoint" or side.stored is None or side.weights in ("auto", side.stored):
        return
    if side.engine in (COMPUTES_NOTHING, "llama-cpp"):
        return
    held = "16-bit weights" if side.stored == "none" else side.stored
    remedy = (
        "set it to auto"
        if side.stored != "none"
        else "name a checkpoint in that format, or set quantization.source to Load or Job"
    )
    problem = f"the checkpoint holds {held}; {remedy}"
    yield Finding(Reason.FORMAT_NOT_SUPPORTED, side.place("weights"), side.weights, problem)


def _weights(side: Side) -> Iterator[Finding]:
    kernel, place, value = side.kernel, side.place("weights"), side.weights
    if value == "auto":
        value = f"auto ({side.format})" if side.format != "none" else "auto"
    if kernel is None:
        if side.format != "none":
            problem = f"whether {_engine(side)} has a kernel for it is not known: {_hardware(side)}; try it before relying on it"
            yield Finding(Reason.FORMAT_NOT_SUPPORTED, place, value, problem, refused=False)
    elif kernel.verdict != "good":
        if side.activations != "auto" and "auto" not in kernel.activations:
            place, value = side.place("activations"), side.activations
        problem = (
            f"{_hardware(side)}, and {kernel.because}"
            if kernel.verdict == "fallback"
            else f"{kernel.because} ({_hardware(side)})"
        )
        yield Finding(Reason.FORMAT_NOT_SUPPORTED, place, value, problem, refused=kernel.verdict == "refused")


def _cache(side: Side) -> Iterator[Finding]:
    if side.kv in WIDE:
        return
    hardware = side.hardware
    row = caches.find(side.engine, side.kv, hardware.vendor, hardware.compute_capability, side.version)
    place = side.place("kvCache")
    if row is None:
        problem = f"whether {_engine(side)} has it is not known: {_hardware(side)}; try it before relying on it"
        yield Finding(Reason.FORMAT_NOT_SUPPORTED, place, side.kv, problem, refused=False)
    elif row.verdict != "good":
        yield Finding(Reason.FORMAT_NOT_SUPPORTED, place, side.kv, row.because, refused=row.verdict == "refused")


def _engine(side: Side) -> str:
    return f"{side.engine} {'.'.join(map(str, side.version))}" if side.version else side.engine


def _hardware(side: Side) -> str:
    generation = side.hardware.compute_capability
    return (
        f"{side.accelerator} has compute capability {generation}"
        if generation
        else f"{side.accelerator}'s compute capability is not known"
    )
