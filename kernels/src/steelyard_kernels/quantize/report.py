"""What a run found: written beside the checkpoint as `quantization-report.json`, and in short to the terminal."""

from __future__ import annotations

from typing import Any, NamedTuple

REPORT = "quantization-report.json"
WORST = 5


class Report(NamedTuple):
    """Errors by layer and linear (relative), perplexities (None: not measured), bytes of tensors, bits a linear's weight."""

    recipe: dict[str, Any]
    layers: list[dict[str, float]]
    perplexity: dict[str, float] | None
    nbytes: dict[str, int]
    bits: float
    resumed_after: int
    seconds: float

    def as_mapping(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict()

    def lines(self) -> list[str]:
        """For people."""
        ranked = sorted(((error, name) for layer in self.layers for name, error in layer.items()), reverse=True)
        mean = sum(error for error, _ in ranked) / max(len(ranked), 1)
        before, after = self.nbytes["before"], self.nbytes["after"]
        sizes = f"{before / 2**20:,.1f} MiB → {after / 2**20:,.1f} MiB ({after / before:.0%})"
        lines = [
            f"size        {sizes}; linears at {self.bits:.2f} bits a weight",
            f"error       {mean:.4f} on average over {len(ranked)} linears (relative; of outputs where calibrated)",
        ]
        lines += [f"  largest   {error:.4f}  {name}" for error, name in ranked[:WORST]]
        if self.perplexity:
            one = self.perplexity
            lines.append(
                f"perplexity  {one['before']:.3f} → {one['after']:.3f} ({one['after'] / one['before'] - 1:+.1%}) "
                f"over {one['windows']:.0f} windows of {one['tokens']:.0f} tokens, rounded inputs included"
            )
        return lines
