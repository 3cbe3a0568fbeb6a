"""How long steps take by the figures of the hardware and the shape of the model alone: a prior until something is measured.

A pass does arithmetic and moves bytes; it takes at least the longer of the two at what kernels reach of the peak:

    prefill of batch n_i:   operations(n_i) / (peak · mfu)        against   weights / (bandwidth · efficiency)
    decode step of b at c:  operations(b, c) / (peak · mfu)       against   (weights + KV(b, c)) / (bandwidth · efficiency)

with operations and bytes as `work.py` counts them. On top come a constant launch time and a constant for each layer, and
what accelerators of one replica send each other: two all-reduces a layer for tensor parallel, an exchange of tokens for
experts under data parallel, activations between pipeline stages. A batch passes the stages one after another; in decode
it is cut into as many parts as there are stages, which work at once.

`bound_*` are the same without any factor and with the fewest experts that could be read: no measurement, and no
prediction of ours, beats them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.api.accelerator import AcceleratorSpec, Peak
from steelyard.api.model import ModelShape
from steelyard.catalog.shapes import Attention, Kind, Shape
from steelyard.decide.model.latency import Polynomial
from steelyard.decide.model.layout import Layout
from steelyard.decide.model.work import STATE_BYTES, Work

HOST_LINK_BYTES_PER_SECOND = 25e9  # 200 Gbit/s, where no faster link between accelerators is known
TYPICAL_HEAD = 128
ACTIVATION_BYTES = 2
TOUCHED_SHARE = 0.8  # of the experts, where the profile of a mixture of experts is exact


@dataclass(frozen=True, slots=True)
class Factors:
    """What kernels reach of the peak, and the constant parts of a step in seconds."""

    arithmetic: float = 0.45  # model FLOPs utilisation
    bandwidth: float = 0.8
    launch_seconds: float = 0.002
    layer_seconds: float = 0.0  # of each layer: launches and small kernels
    collective_seconds: float = 0.0  # of each exchange between accelerators, whatever its size


@dataclass(frozen=True, slots=True)
class Machine:
    """One accelerator's rates, per second, in the formats that are multiplied; and its links."""

    flops: float  # peak of products with weights
    attention_flops: float  # peak of attention's own products
    bandwidth: float  # bytes
    link: float  # bytes that it can send to another of its domain
    domain: int  # accelerators that those links join
    between: float  # bytes that it can send beyond


@dataclass(frozen=True, slots=True)
class Roofline:
    """One replica."""

    machine: Machine
    work: Work
    layout: Layout = Layout()  # noqa: RUF009 (it is frozen)
    factors: Factors = Factors()

    @property
    def accelerators(self) -> int:
        """Accelerators of the replica."""
        return self.layout.accelerators

    @property
    def weights(self) -> float:
        """Bytes of all weights, each counted once."""
        return self.work.stored

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of KV of one token that lies inside every window, each counted once."""
        return self.work.kv_bytes_per_token

    def prefill_seconds(self, batch: Sequence[float]) -> float:
        """The longer of arithmetic and reading the weights, and what comes on top; 0 for an empty batch."""
        if not batch:
            return 0.0
        tokens = sum(batch)
        spread = min(self.layout.data, len(batch))
        arithmetic = self._prefill_arithmetic(batch, self.layout.tensor * spread) / self.factors.arithmetic
        reading = self._weights_reading(self.work.touched(tokens)) / self.factors.bandwidth
        return self._constant() + max(arithmetic, reading) + self._exchange(tokens, spread)

    def decode_step_seconds(self, batch: float, context: float) -> float:
        """The longer of arithmetic and reading weights and KV, and what comes on top."""
        part = self._part(batch)
        arithmetic = self._decode_arithmetic(part, context) / self.factors.arithmetic
        reading = self._weights_reading(self.work.touched(part)) + self._kv_reading(part, context)
        return (
            self._constant()
            + max(arithmetic, reading / self.factors.bandwidth)
            + self._exchange(part, self._ranks(part))
        )

    def transfer_seconds(self, tokens: float) -> float:
        """All devices of the replica send their part at once."""
        return tokens * self.kv_bytes_per_token / (self.machine.link * self.accelerators)

    def bound_prefill(self, batch: Sequence[float]) -> float:
        """Seconds that no device can beat: arithmetic at peak, and one read of the weights."""
        if not batch:
            return 0.0
        experts = self.work.shape.experts
        reading = self._weights_reading(experts.active if experts else 0.0)
        return max(self._prefill_arithmetic(batch, self.layout.stage), reading)

    def bound_decode(self, batch: float, context: float) -> float:
        """Seconds that no device can beat: arithmetic at peak, and one read of weights and KV."""
        part = self._part(batch)
        experts = self.work.shape.experts
        reading = self._weights_reading(experts.active if experts else 0.0) + self._kv_reading(part, context)
        return max(self._decode_arithmetic(part, context), reading)

    def polynomial(self, kv_tokens: float) -> Polynomial:
        """Write the same as a profile: terms added where the roofline takes the longer one, so it is never faster.

        Windows and fixed states are taken for KV that grows with the context, and of experts the tangent to what a
        batch is expected to read, which lies above it everywhere.
        """
        reach, ways = self.factors.arithmetic, self.layout.pipeline * self.layout.data
        arithmetic = self.machine.flops * self.layout.tensor * reach
        pairs = self.machine.attention_flops * self.layout.tensor * reach
        reading = self.machine.bandwidth * self.factors.bandwidth
        shape = self.work.shape
        every = self._weights_reading(shape.experts.count if shape.experts else 0.0) / self.factors.bandwidth
        head = 2 * shape.embedding / arithmetic
        states = sum(g.layers * g.state_operations for g in shape.attention) / pairs
        per_token = 2 * shape.active / arithmetic + states + self._own_exchange(1.0)
        shared = self._shared_exchange(1.0)
        per_pair = sum(g.layers * g.prefill_pair for g in shape.attention) / 2 / pairs

        touched, slope = self._tangent()
        absorbed = sum(g.layers * g.decode_pair for g in shape.attention) / pairs
        state = sum(g.layers * g.state for g in shape.attention) * STATE_BYTES / reading
        per_sequence = per_token + head + state
        more = shared + self.work.experts_read(slope) / self.layout.stage / reading
        step = self._constant() + self._weights_reading(touched) / self.factors.bandwidth
        return Polynomial(
            prefill=(self._constant() + every + head, per_token + shared, per_pair),
            decode=(
                step + (per_sequence if ways > 1 else 0.0),  # b sequences on w ways take as long as 1 + b/w at most
                kv_tokens * max(self._kv_read_growing() / reading, absorbed) / ways,
                0.0,
                per_sequence / ways + more / self.layout.pipeline,
            ),
            kv_tokens=kv_tokens,
            kv_bytes_per_token=self.kv_bytes_per_token,
            transfer_bytes_per_second=self.machine.link * self.accelerators,
        )

    def _tangent(self) -> tuple[float, float]:
        """Experts touched at the batch where most are, brought back to an empty batch, and those of one more token."""
        experts = self.work.shape.experts
        if experts is None:
            return 0.0, 0.0
        size = 1.0
        while experts.touched(size) < TOUCHED_SHARE * experts.count:
            size *= 2
        slope = experts.touched(size + 1) - experts.touched(size)
        return experts.touched(size) - slope * size, slope

    def _kv_read_growing(self) -> float:
        """Bytes that one accelerator reads for each token of context, as if no layer had a window."""
        return (
            sum(g.layers * g.kv_values / self.layout.kv_ways(g) for g in self.work.shape.attention) * self.work.kv_bytes
        )

    def _part(self, batch: float) -> float:
        """Sequences of one of the parts that pass the pipeline one after another."""
        return max(batch / self.layout.pipeline, min(batch, 1.0))

    def _ranks(self, sequences: float) -> float:
        """Data-parallel copies that such a batch keeps busy."""
        return max(1.0, min(self.layout.data, sequences))

    def _prefill_arithmetic(self, batch: Sequence[float], devices: float) -> float:
        linear = self._linear(sum(batch), len(batch), devices)
        return linear + self.work.prefill_attention(batch) / (self.machine.attention_flops * devices)

    def _decode_arithmetic(self, batch: float, context: float) -> float:
        devices = self.layout.tensor * self._ranks(batch)
        attention = self.work.decode_attention(batch, context) / (self.machine.attention_flops * devices)
        return self._linear(batch, batch, devices) + attention

    def _linear(self, tokens: float, sequences: float, devices: float) -> float:
        """Products with weights: experts on all accelerators of the stage, the rest where the tokens are."""
        experts = self.work.shape.experts
        routed = 2.0 * experts.layers * experts.active * experts.weights * tokens if experts else 0.0
        rest = self.work.linear(tokens, sequences) - routed
        return rest / (self.machine.flops * devices) + routed / (self.machine.flops * self.layout.stage)

    def _weights_reading(self, touched: float) -> float:
        """Seconds to read the weights once at full bandwidth, each accelerator its own."""
        dense = self.work.dense_read() / self.layout.tensor
        return (dense + self.work.experts_read(touched) / self.layout.stage) / self.machine.bandwidth

    def _kv_reading(self, batch: float, context: float) -> float:
        """Seconds to read the KV of a batch once at full bandwidth."""
        return batch / self._ranks(batch) * self.work.kv_read(context, self.layout) / self.machine.bandwidth

    def _constant(self) -> float:
        layers = self.work.shape.layers
        exchanges = 2 * layers * (self.layout.tensor > 1)
        if self.work.shape.experts and self.layout.data > 1:
            exchanges += 2 * self.work.shape.experts.layers
        factors = self.factors
        return factors.launch_seconds + layers * factors.layer_seconds + exchanges * factors.collective_seconds

    def _exchange(self, tokens: float, ranks: float) -> float:
        """Seconds in which accelerators of the replica send each other what a pass of so many tokens needs."""
        return self._own_exchange(tokens / ranks) + self._shared_exchange(tokens)

    def _own_exchange(self, tokens: float) -> float:
        """What the tokens of one copy cause: two ring all-reduces a layer, in which each of t accelerators sends 2·(t−1)/t
        of its activations, and the way to the next pipeline stage."""
        layout, size = self.layout, self.work.shape.hidden * ACTIVATION_BYTES
        share = 2 * (layout.tensor - 1) / layout.tensor
        reduced = 2 * self.work.shape.layers * share * tokens * size / self._link(layout.tensor)
        return reduced + (layout.pipeline - 1) * tokens * size / self._link(layout.accelerators)

    def _shared_exchange(self, tokens: float) -> float:
        """Experts under data parallel: each token to its experts' accelerators and back, all accelerators sending at once."""
        experts, layout = self.work.shape.experts, self.layout
        if experts is None or layout.data == 1:
            return 0.0
        copies = min(experts.active, layout.stage) * (layout.stage - 1) / layout.stage
        size = self.work.shape.hidden * ACTIVATION_BYTES
        return 2 * experts.layers * copies * tokens / layout.stage * size / self._link(layout.stage)

    def _link(self, ways: int) -> float:
        return self.machine.link if ways <= self.machine.domain else min(self.machine.link, self.machine.between)


def peak_of(peak: Peak, products: str) -> float:
    """The peak of products in a format; a missing one is taken from the next wider or narrower: half the bits double it at most.

    0 where nothing is known.
    """
    chain = {
        "fp32": (peak.fp32, peak.bf16),
        "bf16": (peak.bf16, peak.fp8 and peak.fp8 / 2, peak.fp4 and peak.fp4 / 4, peak.fp32),
        "fp8": (peak.fp8, peak.bf16, peak.fp4 and peak.fp4 / 2, peak.fp32),
        "fp4": (peak.fp4, peak.fp8, peak.bf16, peak.fp32),
        "int8": (peak.int8, peak.fp8, peak.bf16, peak.fp4 and peak.fp4 / 2, peak.fp32),
    }
    return next((rate for rate in chain[products] if rate), 0.0)


def machine(accelerator: AcceleratorSpec, products: str = "bf16", attention: str = "bf16") -> Machine:
    """Read the figures; raises ValueError naming what is missing."""
    flops, bandwidth = peak_of(accelerator.peak, products), accelerator.memory_bandwidth or 0.0
    if flops <= 0 or bandwidth <= 0:
        raise ValueError("a roofline needs peak.bf16 (or fp32) and memoryBandwidth of the accelerator")
    links = accelerator.interconnect
    between = (links.between_nodes if links else None) or HOST_LINK_BYTES_PER_SECOND
    return Machine(
        flops=flops,
        attention_flops=peak_of(accelerator.peak, attention),
        bandwidth=bandwidth,
        link=links.per_direction if links else HOST_LINK_BYTES_PER_SECOND,
        domain=links.domain if links else 1,
        between=between,
    )


def roofline(
    accelerator: AcceleratorSpec,
    shape: ModelShape,
    *,
    accelerators: int = 1,
    weight_bytes: float = 2.0,
    kv_value_bytes: float = 2.0,
    factors: Factors | None = None,
) -> Roofline:
    """Read the figures of a model that is known in outline only, all of its weights dense and all of its layers full.

    Raises ValueError naming what is missing. Products are 16-bit (32 where there is no such unit).
    """
    parameters, layers, hidden = shape.parameters or 0, shape.layers or 0, shape.hidden_size or 0
    if min(parameters, layers, hidden) <= 0:
        raise ValueError("a roofline needs parameters, layers and hiddenSize of the model")
    heads = shape.attention_heads or max(1, hidden // TYPICAL_HEAD)
    head = shape.head_dimension or max(1, hidden // heads)
    group = Attention(layers, Kind.FULL, heads, shape.kv_heads or heads, head, head)
    outline = Shape(hidden=hidden, vocabulary=0, tied=True, attention=(group,), dense=parameters)
    return Roofline(
        machine=machine(accelerator),
        work=Work(outline, dense_bytes=weight_bytes, expert_bytes=weight_bytes, kv_bytes=kv_value_bytes),
        layout=Layout(tensor=accelerators),
        factors=factors or Factors(),
    )
