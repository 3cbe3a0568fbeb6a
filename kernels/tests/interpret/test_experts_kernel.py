"""The grouped product's kernel against its reference, with empty experts and tiles that are partly filled."""

import pytest
import torch

from closeness import assert_near
from steelyard_kernels.moe.grouped import grouped_matmul, grouped_matmul_ref


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("counts", "inputs", "outputs"),
    [([3, 0, 17], 40, 24), ([0, 0, 5, 1], 64, 70), ([33, 2], 100, 7), ([0, 4, 0], 16, 64)],
)
def test_experts_products_agree(counts: list[int], inputs: int, outputs: int, dtype: torch.dtype) -> None:
    x = torch.randn(sum(counts), inputs).to(dtype)
    weights = (torch.randn(len(counts), outputs, inputs) / inputs**0.5).to(dtype)
    sizes = torch.tensor(counts)
    assert_near(grouped_matmul(x, weights, sizes), grouped_matmul_ref(x, weights, sizes))
