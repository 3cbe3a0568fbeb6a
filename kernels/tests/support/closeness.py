"""How near a kernel must come to its reference, by the type it computes with; integers must be equal."""

import torch
from torch import Tensor

# Absolute and relative. fp32 for sums of up to 4096 products; the others are a few units in the last place of the type.
TOLERANCE = {
    torch.float64: (1e-10, 1e-10),
    torch.float32: (1e-5, 1e-5),
    torch.float16: (1e-3, 1e-3),
    torch.bfloat16: (2e-2, 1.6e-2),
}


def assert_near(actual: Tensor, expected: Tensor, scale: float = 1.0) -> None:
    """Compare by `actual`'s type; `scale` widens the absolute tolerance for values that are not about 1."""
    if not actual.dtype.is_floating_point:
        assert torch.equal(actual, expected)
        return
    absolute, relative = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual.double(), expected.double(), atol=absolute * scale, rtol=relative)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """‖actual − expected‖ / ‖expected‖ (Frobenius)."""
    return ((actual.double() - expected.double()).norm() / expected.double().norm()).item()
