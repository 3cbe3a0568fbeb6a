import pytest
import torch

from closeness import assert_near, relative_error
from steelyard_kernels.gemm.fp4 import fp4_matmul, fp4_matmul_ref
from steelyard_kernels.gemm.fp8 import fp8_matmul, fp8_matmul_ref
from steelyard_kernels.quant import fp4, nf4, ternary
from steelyard_kernels.quant.fp8 import quantize_fp8, quantize_fp8_ref

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1, 65, 64), (5, 24, 192), (35, 130, 128)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("granularity", ["row", "group"])
@pytest.mark.parametrize(("rows", "inputs"), [(1, 128), (19, 300), (7, 90)])
def test_quantizing_to_fp8(dtype: torch.dtype, granularity, rows: int, inputs: int) -> None:
    x = torch.randn(rows, inputs).to(dtype)
    kernel, reference = quantize_fp8(x, granularity), quantize_fp8_ref(x, granularity)
    assert torch.equal(kernel.codes.view(torch.uint8), reference.codes.view(torch.uint8))
    assert_near(kernel.scale, reference.scale)


@pytest.mark.parametrize(
    ("of_x", "of_weight"),
    [("tensor", "tensor"), ("row", "row"), ("row", "tensor"), ("group", "block"), ("group", "row")],
)
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 65, 64), (5, 140, 300), (35, 130, 128)])
def test_multiplying_fp8(of_x, of_weight, rows: int, outputs: int, inputs: int) -> None:
    x, weight = (
        quantize_fp8_ref(torch.randn(rows, inputs), of_x),
        quantize_fp8_ref(torch.randn(outputs, inputs), of_weight),
    )
    assert relative_error(fp8_matmul(x, weight), fp8_matmul_ref(x, weight)) < 1e-3


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("rows", "inputs"), [(1, 32), (37, 96), (70, 64)])
def test_quantizing_to_mxfp4(dtype: torch.dtype, rows: int, inputs: int) -> None:
    weight = torch.randn(rows, inputs).to(dtype)
    weight[0, :8] = torch.tensor([0.0, -0.0, 0.25, 0.75, -1.25, 1.75, 2.5, 5.0])
    for ours, theirs in zip(fp4.quantize_mxfp4(weight), fp4.quantize_mxfp4_ref(weight), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("quantize", [fp4.quantize_nvfp4, fp4.quantize_mxfp4_ref], ids=["nvfp4", "mxfp4"])
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 65, 32), (5, 24, 96), (35, 130, 128)])
def test_multiplying_fp4(dtype: torch.dtype, quantize, rows: int, outputs: int, inputs: int) -> None:
    weight = quantize(torch.randn(outputs, inputs) / inputs**0.5)
    x = torch.randn(rows, inputs).to(dtype)
    assert_near(fp4_matmul(x, weight), fp4_matmul_ref(x, weight), scale=2.0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("rows", "outputs", "inputs"), SHAPES)
def test_multiplying_nf4(dtype: torch.dtype, rows: int, outputs: int, inputs: int) -> None:
    weight = nf4.quantize_nf4(torch.randn(outputs, inputs) / inputs**0.5)
    x = torch.randn(rows, inputs).to(dtype)
    assert_near(nf4.nf4_matmul(x, weight), nf4.nf4_matmul_ref(x, weight), scale=2.0)


@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 4, 64), (5, 24, 90), (35, 132, 128)])
def test_multiplying_ternary_is_exact(rows: int, outputs: int, inputs: int) -> None:
    codes = torch.randint(-128, 128, (rows, inputs), dtype=torch.int8)
    packed = ternary.pack_quarters(torch.randint(-1, 2, (outputs, inputs), dtype=torch.int8))
    assert torch.equal(ternary.ternary_matmul(codes, packed), ternary.ternary_matmul_ref(codes, packed))
