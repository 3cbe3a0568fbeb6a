"""SmoothQuant (arXiv 2211.10438): move the outliers of activations into the weights, so that both fit 8 bits.

    s_j = max|X_j|^a / max|W_j|^(1−a),   X' = X / s,   W' = W · s,   and X'·W'ᵀ = X·Wᵀ
max|W_j| is over all linears that read the input. 1/s folds into the norm before. The published strength a is 0.5 for OPT and BLOOM,
0.85 for Llama 2 and 3, 0.8 for Mistral.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def smoothing_scale(largest: Tensor, weights: Sequence[Tensor], strength: float = 0.5) -> Tensor:
    """s [inputs] from max|X| [inputs] and the weights [outputs, inputs] that read X."""
    if not 0 <= strength <= 1:
        raise ValueError(
            f"strength is {strength}; it must be between 0 (weights keep theirs) and 1 (activations give all)"
        )
    of_weights = torch.stack([weight.abs().amax(0) for weight in weights]).amax(0).clamp(min=1e-5)
    return (largest.clamp(min=1e-5) ** strength / of_weights ** (1 - strength)).clamp(min=1e-5)
