import pytest
import torch

from closeness import assert_near
from steelyard_kernels.gemm.packed import packed_matmul, packed_matmul_ref
from steelyard_kernels.quant.groups import pack, quantize_groups, quantize_groups_ref

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("outputs", "group", "groups"), [(1, 16, 3), (37, 64, 2), (70, 32, 1)])
@pytest.mark.parametrize(("bits", "symmetric"), [(4, True), (4, False), (3, True), (8, False)])
def test_quantizing(dtype: torch.dtype, outputs: int, group: int, groups: int, bits: int, symmetric: bool) -> None:
    weight = torch.randn(outputs, group * groups).to(dtype)
    kernel, reference = (
        quantize_groups(weight, bits, group, symmetric),
        quantize_groups_ref(weight, bits, group, symmetric),
    )
    assert torch.equal(kernel.codes, reference.codes)
    assert_near(kernel.scale, reference.scale)
    assert torch.equal(kernel.zero, reference.zero)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("rows", "outputs", "group", "groups"), [(1, 65, 64, 3), (5, 24, 32, 2), (33, 130, 128, 1)])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_multiplying(dtype: torch.dtype, rows: int, outputs: int, group: int, groups: int, bits: int) -> None:
    x = torch.randn(rows, group * groups).to(dtype)
    quantized = quantize_groups_ref(
        torch.randn(outputs, group * groups) / (group * groups) ** 0.5, bits, group, bits == 8
    )
    arguments = (x, pack(quantized.codes, bits), quantized.scale, quantized.zero, bits)
    # The kernel multiplies in x's type, as a matrix unit does; so the weight is rounded to it once more.
    assert_near(packed_matmul(*arguments), packed_matmul_ref(*arguments), scale=2.0)
