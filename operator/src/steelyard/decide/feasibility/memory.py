"""Memory of one accelerator by part: what is there whatever happens, and what each token of KV takes.

    weights      a stage's share: dense / (t·p), experts / (t·d·p), embedding and output matrix / t
    adapters     slots · rank · (inputs + outputs of every matrix) · 2 bytes / t
    draft        the guessing model, in 16 bits / t
    activations  tokens of a pass · (4 · hidden + 3 · widest layer / t) · 2 bytes: what one layer holds at once
    logits       sequences · vocabulary · 16 bytes: the sampler's copies in 32 bits
    workspace    the driver's context, communication buffers, captured graphs
    KV           a token's share of a stage, in its format; what all heads share is not cut by tensor parallel

t, p, d are the tensor, pipeline and data ways. The last three parts are estimates, set so that vLLM 0.19's own account of an
RTX 4090 with Llama-3.1-8B comes out (41,408 tokens of KV); the rest is counted.
"""

from dataclasses import dataclass
from math import ceil

from steelyard.catalog import formats
from steelyard.catalog.shapes import Shape
from steelyard.decide.feasibility.inputs import Side
from steelyard.decide.model.work import STATE_BYTES, work

WORKSPACE_BYTES = 0.5e9
SAMPLER_BYTES = 16.0  # of one logit
ADAPTER_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one accelerator of a replica. `per_token` is what one more token of context takes, `per_sequence` what a
    sequence takes whatever its length: fixed states, windows that are full, tokens that stay in 16 bits."""

    weights: float
    adapters: float
    draft: float
    activations: float
    workspace: float
    per_token: float
    per_sequence: float
    window: int  # tokens beyond which `per_sequence` and `per_token` are exact
    available: float  # what the engine may use of it
    data: int  # copies of the KV cache in one replica

    @property
    def fixed(self) -> float:
        """Everything but KV."""
        return self.weights + self.adapters + self.draft + self.activations + self.workspace

    @property
    def left(self) -> float:
        """Bytes for KV; negative where not even the rest fits."""
        return self.available - self.fixed

    def sequence(self, tokens: float) -> float:
        """Bytes of the KV of one sequence of that context."""
        return self.per_sequence + self.per_token * tokens

    def tokens(self, context: float) -> int:
        """Tokens of KV that one replica holds if its sequences have that context; 0 where nothing fits."""
        if self.left <= 0:
            return 0
        sequences = self.left / max(self.sequence(context), 1e-9)
        return int(sequences * context) * self.data

    def sequences(self, context: float) -> int:
        """Sequences of that context that one replica holds at once."""
        return int(max(0.0, self.left) / max(self.sequence(context), 1e-9)) * self.data

    def longest(self, limit: int) -> int:
        """The longest context of which one sequence fits, up to `limit`; 0 where none does."""
        room = self.left - self.per_sequence
        if room < 0:
            return 0
        return limit if self.per_token == 0 else min(limit, int(room / self.per_token))


def memory(side: Side) -> Memory | None:
    """Count all parts of one accelerator of a side; None where the hardware does not say how much it has."""
    available = side.memory
    if available is None:
        return None
    layout, shape = side.layout, side.shape
    kept = min(side.context, side.kept) if side.kept is not None else side.context
    per_token, per_sequence = _kv(side, shape, kept)
    if side.draft is not None:
        draft_token, draft_sequence = _kv(side, side.draft, kept)
        per_token, per_sequence = per_token + draft_token, per_sequence + draft_sequence
    if side.kept is not None:  # the budget is taken at once, whatever the length
        per_token, per_sequence = 0.0, per_sequence + per_token * kept
    return Memory(
        weights=weights(side),
        adapters=side.adapters * side.rank * _ports(shape) * ADAPTER_BYTES / layout.tensor / layout.pipeline,
        draft=side.draft.parameters * 2.0 / layout.tensor if side.draft is not None else 0.0,
        activations=side.batch_tokens * (4.0 * shape.hidden + 3.0 * _widest(shape) / layout.tensor) * 2.0
        + side.sequences * shape.vocabulary * SAMPLER_BYTES,
        workspace=WORKSPACE_BYTES,
        per_token=per_token,
        per_sequence=per_sequence,
        window=max((group.window for group in shape.attention), default=0),
        available=available,
        data=layout.data,
    )


def weights(side: Side) -> float:
    """Bytes of weights that the fullest accelerator of a replica holds."""
    counted, layout = work(side.shape, side.format), side.layout
    shrunk = formats.LOSSLESS_SHARE if side.lossless and side.format == "none" else 1.0
    stages = min(layout.pipeline, side.shape.layers)
    share = ceil(side.shape.layers / stages) / side.shape.layers  # of the layers, in the fullest stage
    edges = side.shape.edges if stages == 1 else side.shape.embedding
    experts = counted.experts_read(side.shape.experts.count) if side.shape.experts else 0.0
    dense = side.shape.dense * counted.dense_bytes
    return (edges * 2.0 + dense * share * shrunk) / layout.tensor + experts * share * shrunk / layout.stage


def _kv(side: Side, shape: Shape, context: int) -> tuple[float, float]:
    """Bytes of a token and of a sequence, of one accelerator, exact at that context."""
    cached = formats.KV[side.kv_format]
    token = sequence = 0.0
    for group in shape.attention:
        share = group.layers / side.layout.pipeline / side.layout.kv_ways(group)
        packed = group.kv_values * cached.width(group.key) / 8 * share
        if group.window and group.window < context:
            sequence += packed * group.window
        else:
            token += packed
        recent = min(cached.recent, context)
        sequence += group.kv_values * share * (2.0 - cached.width(group.key) / 8) * recent
        sequence += (
            group.state * STATE_BYTES * group.layers / side.layout.pipeline / min(side.layout.tensor, group.heads)
        )
    return token, sequence


def _widest(shape: Shape) -> float:
    """Width of the widest layer that one pass goes through, from the count of its weights."""
    attention = max((group.heads * group.key for group in shape.attention), default=0)
    if shape.experts:
        return max(attention, shape.experts.active * shape.experts.weights / (3 * shape.hidden))
    return max(attention, _feed_forward(shape))


def _feed_forward(shape: Shape) -> float:
    """Width of the dense feed-forward layer, from the weights that attention leaves."""
    attention = sum(g.layers * shape.hidden * 2 * (g.heads + g.kv_heads) * g.key for g in shape.attention)
    return max(0.0, (shape.dense - attention) / (3 * shape.hidden * max(shape.layers, 1)))


def _ports(shape: Shape) -> float:
    """Inputs and outputs of every dense matrix of all layers, which an adapter's two thin matrices attach to."""
    found = 0.0
    for group in shape.attention:
        wide = group.heads * group.key
        found += group.layers * (2 * (shape.hidden + wide) + 2 * (shape.hidden + group.kv_heads * group.key))
    return found + shape.layers * 3 * (shape.hidden + (_feed_forward(shape) if shape.experts is None else 0))
