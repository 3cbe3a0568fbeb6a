"""The shape of a transformer: how many weights it has and where, and what its attention keeps of every token.

Everything that planning needs follows from a few counts. A layer's attention is one of four kinds, which differ in what
a token leaves behind:

| kind | KV values a token and layer | grows with the context |
|---|---|---|
| full | kv heads · (key + value width) | without end |
| sliding | the same | up to the window |
| latent (MLA) | rank + rotary width, shared by all heads | without end |
| linear | none; a state of fixed size a sequence | not at all |

Weights are counted in three groups, because formats treat them differently: the token embedding and the output matrix
(left in 16 bits by every quantizer that engines load), the matrices that every token passes, and routed experts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a layer's attention keeps of a token."""

    FULL = "full"
    SLIDING = "sliding"
    LATENT = "latent"
    LINEAR = "linear"


@dataclass(frozen=True, slots=True)
class Attention:
    """So many layers of one kind of attention."""

    layers: int
    kind: Kind
    heads: int
    kv_heads: int
    key: int  # width of one head's query and key
    value: int  # width of one head's value
    window: int = 0  # tokens, of sliding layers
    latent: int = 0  # values a token, of latent layers: rank + rotary width
    rank: int = 0  # of latent layers
    state: int = 0  # values a sequence, of linear layers

    @property
    def kv_values(self) -> int:
        """Values that one token of context keeps in one layer."""
        if self.kind is Kind.LINEAR:
            return 0
        return self.latent if self.kind is Kind.LATENT else self.kv_heads * (self.key + self.value)

    def held(self, context: float) -> float:
        """Tokens that are kept of a context of so many."""
        return min(context, self.window) if self.kind is Kind.SLIDING else context

    @property
    def prefill_pair(self) -> float:
        """Operations for one pair of a query and a key that it sees, over all heads of one layer."""
        return 0.0 if self.kind is Kind.LINEAR else 2.0 * self.heads * (self.key + self.value)

    @property
    def decode_pair(self) -> float:
        """The same in decode, where latent attention works on the latent values themselves (absorbed)."""
        return 2.0 * self.heads * (self.latent + self.rank) if self.kind is Kind.LATENT else self.prefill_pair

    @property
    def state_operations(self) -> float:
        """Operations of one token on the fixed state of one linear layer: decay, update and read."""
        return 6.0 * self.state if self.kind is Kind.LINEAR else 0.0


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts: `layers` layers of `count`, of which a token passes `active`; `weights` of one expert."""

    layers: int
    count: int
    active: int
    weights: int

    def touched(self, tokens: float) -> float:
        """Experts of one layer that a batch of so many tokens reads, if every choice is equally likely."""
        expected = self.count * (1.0 - float((1.0 - self.active / self.count) ** max(tokens, 0.0)))
        return max(expected, min(tokens, 1.0) * self.active)  # one token reads exactly its own

    @property
    def total(self) -> int:
        """Weights of all of them."""
        return self.layers * self.count * self.weights


@dataclass(frozen=True, slots=True)
class Shape:
    """A model. `dense` counts the weights of all matrices that every token passes, shared experts and routers too."""

    hidden: int
    vocabulary: int
    tied: bool  # the output matrix is the embedding
    attention: tuple[Attention, ...]
    dense: int
    experts: Experts | None = None
    context: int | None = None  # most positions it was made for; None: not known

    @property
    def layers(self) -> int:
        """All layers."""
        return sum(group.layers for group in self.attention)

    @property
    def embedding(self) -> int:
        """Weights of the token embedding."""
        return self.vocabulary * self.hidden

    @property
    def edges(self) -> int:
        """Weights of the embedding and the output matrix that are stored."""
        return self.embedding * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.edges + self.dense + (self.experts.total if self.experts else 0)

    @property
    def active(self) -> int:
        """Weights that one token is multiplied with, without the output matrix."""
        routed = self.experts.layers * self.experts.active * self.experts.weights if self.experts else 0
        return self.dense + routed

    @property
    def kv_values(self) -> int:
        """KV values that one token keeps while its context is inside every window."""
        return sum(group.layers * group.kv_values for group in self.attention)

    def kv_held(self, context: float) -> float:
        """KV values that one sequence of that context keeps, fixed states included."""
        growing = sum(group.layers * group.kv_values * group.held(context) for group in self.attention)
        return growing + sum(group.layers * group.state for group in self.attention)

    @property
    def kv_heads(self) -> tuple[int, ...]:
        """The different numbers of KV heads; of a latent kind 1, since all heads share what is kept."""
        return tuple(sorted({1 if g.kind is Kind.LATENT else g.kv_heads for g in self.attention}))

    @property
    def heads(self) -> tuple[int, ...]:
        """The different numbers of query heads."""
        return tuple(sorted({group.heads for group in self.attention}))

    def has(self, *kinds: Kind) -> bool:
        """Whether some layer is of one of these kinds."""
        return any(group.kind in kinds for group in self.attention)

    @property
    def words(self) -> str:
        """The shape in a few words, such as "moe, latent attention"."""
        kinds: Iterable[str] = dict.fromkeys(str(group.kind) for group in self.attention)
        return f"{'moe' if self.experts else 'dense'}, {' + '.join(kinds)} attention"
