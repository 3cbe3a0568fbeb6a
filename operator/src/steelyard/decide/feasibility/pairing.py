"""Can KV pass from prefill to decode? The conditions that hold for a pair, and what the table says of them."""

from collections.abc import Iterator

from steelyard.api.reasons import Reason
from steelyard.catalog import pairings
from steelyard.catalog.shapes import Kind
from steelyard.decide.feasibility.findings import Finding
from steelyard.decide.feasibility.inputs import COMPUTES_NOTHING, Pair, Side


def pairs(pair: Pair) -> Iterator[Finding]:
    """Tell every rule that holds."""
    prefill, decode = pair.prefill, pair.decode
    for rule in pairings.found(decode.engine, pair.connector, decode.version, conditions(pair)):
        value = f"{_value(prefill, rule.setting)} and {_value(decode, rule.setting)}"
        if rule.setting == "network":
            value = pair.network
        both = prefill.place(rule.setting), decode.place(rule.setting)
        place = " and ".join(dict.fromkeys(both))
        problem = f"prefill and decode: {rule.because} (engine {decode.engine}, connector {pair.connector})"
        yield Finding(Reason.ROLES_INCOMPATIBLE, place, value, problem, refused=rule.verdict == "refused")


def conditions(pair: Pair) -> frozenset[str]:
    """Name what holds of a pair, in the words of `catalog/pairings.py`."""
    prefill, decode = pair.prefill, pair.decode
    one, other = prefill.layout, decode.layout
    sides = (prefill, decode)
    shape = decode.shape
    held = {
        "kv-format-differs": prefill.kv_format != decode.kv_format,
        "model-context-differs": prefill.context != decode.context,
        "tensor-differs": one.tensor != other.tensor,
        "layout-differs": (one.tensor, one.pipeline, one.data) != (other.tensor, other.pipeline, other.data),
        "prefill-tensor-above-decode": one.tensor > other.tensor,
        "tensor-not-a-multiple": other.tensor > one.tensor and other.tensor % one.tensor != 0,
        "hybrid": shape.has(Kind.LINEAR),
        "kv-quantized": any(side.kv_format != "none" for side in sides),
        "experts": shape.experts is not None,
        "not-latent": not shape.has(Kind.LATENT),
        "pipelined": max(one.pipeline, other.pipeline) > 1,
        "accelerator-differs": prefill.accelerator != decode.accelerator,
        "computes": decode.engine != COMPUTES_NOTHING,
        "slice": any("/mig-" in (side.hardware.resource or "") for side in sides),
        "rdma": pair.network == "rdma",
    }
    return frozenset(name for name, holds in held.items() if holds)


def _value(side: Side, setting: str) -> str:
    values = {
        "kvCache": side.kv, "context": side.context, "tensor": side.layout.tensor, "pipeline": side.layout.pipeline,
        "accelerator": side.accelerator,
    }  # fmt: skip
    return str(values.get(setting, ""))
