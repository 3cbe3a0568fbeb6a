"""What a simulated engine takes for each step: a roofline prior from the accelerator's figures and the model's shape.

Prefill of n new tokens is bound by arithmetic, `a + b·n + c·n²` seconds:

    b = 2·P / (peak · MFU)                          every weight is one multiply-add for each token
    c = 2·layers·width / (peak · MFU)               attention: each token attends half of n on average, two products
    a = launch + P·w / (bandwidth · efficiency)     the weights are read once however short the prompt

A decode step with batch n at KV use u (0..1) is bound by memory, `g0 + g1·u + g2·u² + g3·n` seconds:

    g0 = launch + P·w / (bandwidth · efficiency)    the weights
    g1 = K·k / (bandwidth · efficiency)             all of the KV cache at u = 1 (K tokens of k bytes)
    g2 = 0                                          a measured profile may bend; a roofline does not
    g3 = 2·P / (peak · MFU)                         arithmetic of one sequence

P parameters, w = 2 bytes each (bf16), k = 2·layers·kvHeads·headDimension·2 bytes of KV a token. The constants are those
of published kernels (0.8 of bandwidth; MFU .45 prefill), not of one device.
"""

from dataclasses import dataclass
from typing import Any

from steelyard.api.accelerator import AcceleratorSpec
from steelyard.api.model import ModelShape

BYTES_PER_VALUE = 2
BANDWIDTH_EFFICIENCY = 0.8
MODEL_FLOPS_UTILISATION = 0.45
LAUNCH_SECONDS = 0.002
LOAD_BYTES_PER_SECOND = 2e9  # from local disk into the accelerator
START_SECONDS = 2.0  # process and warm-up
HOST_LINK_BYTES_PER_SECOND = 25e9  # 200 Gbit/s, where no faster link between accelerators is known
TYPICAL_HEAD = 128


@dataclass(frozen=True)
class Profile:
    """A simulated engine's times in seconds and sizes in tokens and bytes; the file format of docs/design/interfaces."""

    startup_seconds: float
    kv_tokens: int
    prefill: tuple[float, float, float]  # a, b, c
    decode: tuple[float, float, float, float]  # g0, g1, g2, g3
    transfer_bytes_per_second: float
    bytes_per_token: int

    def manifest(self) -> dict[str, Any]:
        """Give the file's content; figures are rounded to six digits, so that the text is stable."""
        a, b, c = map(_rounded, self.prefill)
        g0, g1, g2, g3 = map(_rounded, self.decode)
        return {
            "startupSeconds": _rounded(self.startup_seconds),
            "kvTokens": self.kv_tokens,
            "prefill": {"a": a, "b": b, "c": c},
            "decode": {"g0": g0, "g1": g1, "g2": g2, "g3": g3},
            "transferBytesPerSecond": _rounded(self.transfer_bytes_per_second),
            "bytesPerToken": self.bytes_per_token,
        }


def roofline(accelerator: AcceleratorSpec, shape: ModelShape, kv_tokens: int) -> Profile:
    """Compute the prior; the shape and the accelerator have the figures that `accept` asks for."""
    parameters, layers, hidden = shape.parameters or 0, shape.layers or 0, shape.hidden_size or 0
    flops = (accelerator.peak.bf16 or accelerator.peak.fp32 or 0.0) * MODEL_FLOPS_UTILISATION
    bandwidth = (accelerator.memory_bandwidth or 0.0) * BANDWIDTH_EFFICIENCY
    if min(parameters, layers, hidden) <= 0 or flops <= 0 or bandwidth <= 0:
        raise ValueError("a roofline needs parameters, layers, hiddenSize, peak.bf16 (or fp32) and memoryBandwidth")
    heads = shape.attention_heads or max(1, hidden // TYPICAL_HEAD)
    head = shape.head_dimension or max(1, hidden // heads)
    kv_bytes = 2 * layers * (shape.kv_heads or heads) * head * BYTES_PER_VALUE
    weights = parameters * BYTES_PER_VALUE
    read_weights = LAUNCH_SECONDS + weights / bandwidth
    per_token = 2 * parameters / flops
    link = accelerator.interconnect.per_direction if accelerator.interconnect else HOST_LINK_BYTES_PER_SECOND
    return Profile(
        startup_seconds=START_SECONDS + weights / LOAD_BYTES_PER_SECOND,
        kv_tokens=kv_tokens,
        prefill=(read_weights, per_token, 2 * layers * heads * head / flops),
        decode=(read_weights, kv_tokens * kv_bytes / bandwidth, 0.0, per_token),
        transfer_bytes_per_second=link,
        bytes_per_token=kv_bytes,
    )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
