"""How one replica is spread over accelerators, as the latency and memory models see it."""

from dataclasses import dataclass

from steelyard.catalog.shapes import Attention, Kind


@dataclass(frozen=True, slots=True)
class Layout:
    """tensor × pipeline × data accelerators; `expert` spreads whole experts over tensor × data of them instead of cutting each.

    Tensor parallel cuts every matrix and the heads; pipeline parallel gives each stage its layers; data parallel copies
    the attention part and the dense matrices, while experts are shared by all copies.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False

    @property
    def accelerators(self) -> int:
        """Accelerators of one replica."""
        return self.tensor * self.pipeline * self.data

    @property
    def stage(self) -> int:
        """Accelerators of one pipeline stage."""
        return self.tensor * self.data

    def kv_ways(self, group: Attention) -> int:
        """Ways in which tensor parallel cuts a layer's KV: by heads, so never finer than one; what all heads share is copied."""
        return 1 if group.kind is Kind.LATENT else min(self.tensor, group.kv_heads)

    @property
    def words(self) -> str:
        """The layout in a few letters: TP4, TP2 PP2, TP1 DP8 EP."""
        parts = [f"TP{self.tensor}", f"PP{self.pipeline}" * (self.pipeline > 1), f"DP{self.data}" * (self.data > 1)]
        return " ".join(filter(None, [*parts, "EP" * self.expert]))
