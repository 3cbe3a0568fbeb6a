import pytest
import torch

from closeness import assert_near
from steelyard_kernels.rotation.hadamard import turn, turn_ref


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("rows", "order"), [(1, 64), (3, 576), (2, 1536), (4, 12), (5, 2)])
def test_turning(dtype: torch.dtype, rows: int, order: int) -> None:
    x = torch.randn(rows, order).to(dtype)
    assert_near(turn(x), turn_ref(x))
