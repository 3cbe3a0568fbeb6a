"""How long steps take by the figures of the hardware and the shape of the model alone: a prior until something is measured.

A pass does arithmetic and moves bytes; it takes at least the longer of the two at what kernels reach of the peak:

    prefill of batch n_i:   (2·P·Σn + 2·L·A·Σn²) / (peak · mfu)   against   P·w / (bandwidth · efficiency)
    decode step of b at c:  (2·P·b + 4·L·A·b·c) / (peak · mfu)    against   (P·w + b·c·k) / (bandwidth · efficiency)

P parameters of w bytes, L layers, A = heads · head width, k = 2·L·kvHeads·headWidth·(bytes of a KV value). Attention of a
prompt reads half of it on average, two products of 2 operations each: 4·(n/2)·A per token and layer. A constant launch
time comes on top, and with t accelerators to a replica two all-reduces a layer over their links. Dense and grouped-query
models; the factors are those of published kernels, not of one device.

`bound_*` are the same without any factor: no measurement, and no prediction of ours, beats them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.api.accelerator import AcceleratorSpec
from steelyard.api.model import ModelShape
from steelyard.decide.model.latency import Polynomial

HOST_LINK_BYTES_PER_SECOND = 25e9  # 200 Gbit/s, where no faster link between accelerators is known
TYPICAL_HEAD = 128
ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True)
class Factors:
    """What kernels reach of the peak, and the constant part of a step in seconds."""

    arithmetic: float = 0.45  # model FLOPs utilisation
    bandwidth: float = 0.8
    launch_seconds: float = 0.002


@dataclass(frozen=True, slots=True)
class Roofline:
    """One replica of `accelerators` devices."""

    flops: float  # peak of one device in the format of the products, per second
    bandwidth: float  # bytes per second of one device
    link: float  # bytes per second that one device can send
    parameters: float
    layers: int
    hidden: int
    attention: int  # heads · head width
    weight_bytes: float  # of one parameter
    kv_bytes_per_token: float  # over all devices
    accelerators: int = 1
    factors: Factors = Factors()

    def prefill_seconds(self, batch: Sequence[float]) -> float:
        """The longer of arithmetic and reading the weights, and what comes on top; 0 for an empty batch."""
        if not batch:
            return 0.0
        arithmetic = self._arithmetic(self._prefill_work(batch)) / self.factors.arithmetic
        reading = self._reading(self._weights) / self.factors.bandwidth
        return self.factors.launch_seconds + max(arithmetic, reading) + self._exchange(sum(batch))

    def decode_step_seconds(self, batch: float, context: float) -> float:
        """The longer of arithmetic and reading weights and KV, and what comes on top."""
        arithmetic = self._arithmetic(self._decode_work(batch, context)) / self.factors.arithmetic
        reading = self._reading(self._weights + batch * context * self.kv_bytes_per_token) / self.factors.bandwidth
        return self.factors.launch_seconds + max(arithmetic, reading) + self._exchange(batch)

    def transfer_seconds(self, tokens: float) -> float:
        """All devices of the replica send their part at once."""
        return tokens * self.kv_bytes_per_token / (self.link * self.accelerators)

    def bound_prefill(self, batch: Sequence[float]) -> float:
        """Seconds that no device can beat: arithmetic at peak, and one read of the weights."""
        return max(self._arithmetic(self._prefill_work(batch)), self._reading(self._weights)) if batch else 0.0

    def bound_decode(self, batch: float, context: float) -> float:
        """Seconds that no device can beat: arithmetic at peak, and one read of weights and KV."""
        read = self._reading(self._weights + batch * context * self.kv_bytes_per_token)
        return max(self._arithmetic(self._decode_work(batch, context)), read)

    def polynomial(self, kv_tokens: float) -> Polynomial:
        """Write the same as a profile: terms added where the roofline takes the longer one, so it is never faster."""
        arithmetic = self.flops * self.accelerators * self.factors.arithmetic
        reading = self.bandwidth * self.accelerators * self.factors.bandwidth
        constant = self.factors.launch_seconds + self._weights / reading
        per_token = 2 * self.parameters / arithmetic + self._exchange(1.0)
        per_pair = 2 * self.layers * self.attention / arithmetic
        kv = max(self.kv_bytes_per_token / reading, 2 * per_pair)
        return Polynomial(
            prefill=(constant, per_token, per_pair),
            decode=(constant, kv_tokens * kv, 0.0, per_token),
            kv_tokens=kv_tokens,
            kv_bytes_per_token=self.kv_bytes_per_token,
            transfer_bytes_per_second=self.link * self.accelerators,
        )

    @property
    def _weights(self) -> float:
        return self.parameters * self.weight_bytes

    def _prefill_work(self, batch: Sequence[float]) -> float:
        squares = sum(tokens * tokens for tokens in batch)
        return 2 * self.parameters * sum(batch) + 2 * self.layers * self.attention * squares

    def _decode_work(self, batch: float, context: float) -> float:
        return 2 * self.parameters * batch + 4 * self.layers * self.attention * batch * context

    def _arithmetic(self, operations: float) -> float:
        return operations / (self.flops * self.accelerators)

    def _reading(self, size: float) -> float:
        return size / (self.bandwidth * self.accelerators)

    def _exchange(self, tokens: float) -> float:
        """Two ring all-reduces a layer: each device sends 2·(t−1)/t of the activations."""
        if self.accelerators == 1:
            return 0.0
        share = 2 * (self.accelerators - 1) / self.accelerators
        return 2 * self.layers * share * tokens * self.hidden * ACTIVATION_BYTES / self.link


def roofline(
    accelerator: AcceleratorSpec,
    shape: ModelShape,
    *,
    accelerators: int = 1,
    weight_bytes: float = 2.0,
    kv_value_bytes: float = 2.0,
    factors: Factors | None = None,
) -> Roofline:
    """Read the figures; raises ValueError naming what is missing. Products are 16-bit (32 where there is no such unit)."""
    parameters, layers, hidden = shape.parameters or 0, shape.layers or 0, shape.hidden_size or 0
    flops = accelerator.peak.bf16 or accelerator.peak.fp32 or 0.0
    bandwidth = accelerator.memory_bandwidth or 0.0
    if min(parameters, layers, hidden) <= 0 or flops <= 0 or bandwidth <= 0:
        raise ValueError("a roofline needs parameters, layers, hiddenSize, peak.bf16 (or fp32) and memoryBandwidth")
    heads = shape.attention_heads or max(1, hidden // TYPICAL_HEAD)
    head = shape.head_dimension or max(1, hidden // heads)
    return Roofline(
        flops=flops,
        bandwidth=bandwidth,
        link=accelerator.interconnect.per_direction if accelerator.interconnect else HOST_LINK_BYTES_PER_SECOND,
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        attention=heads * head,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=2 * layers * (shape.kv_heads or heads) * head * kv_value_bytes,
        accelerators=accelerators,
        factors=factors or Factors(),
    )
