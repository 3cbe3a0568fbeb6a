import pytest
import torch

from closeness import assert_near
from steelyard_kernels.attention.rotary import rates_of, rotate, rotate_ref


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("heads", "tokens", "width"), [(1, 1, 64), (3, 37, 80), (2, 65, 18)])
def test_turning(dtype: torch.dtype, heads: int, tokens: int, width: int) -> None:
    x = torch.randn(heads, tokens, width).to(dtype)
    positions, rates = torch.randint(0, 5000, (tokens,)), rates_of(width, 10000.0)
    # An angle of thousands of radians keeps some 3 digits after the point in fp32.
    assert_near(
        rotate(x, positions, rates), rotate_ref(x, positions, rates), scale=100 if dtype == torch.float32 else 1
    )
