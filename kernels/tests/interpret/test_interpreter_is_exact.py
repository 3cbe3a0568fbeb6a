"""The corrected interpreter agrees with torch where the stock one is wrong. A Triton that fails here is not to be trusted."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def _convert(source, target, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(target + at, tl.load(source + at).to(target.dtype.element_ty))


@triton.jit
def _arithmetic(a, b, out, n: tl.constexpr):
    at = tl.arange(0, n)
    x, y = tl.load(a + at), tl.load(b + at)
    tl.store(out + at, tl.where(x > y, x * y + x, x - y))


@triton.jit
def _product(a, b, out, n: tl.constexpr):
    at = tl.arange(0, n)[:, None] * n + tl.arange(0, n)[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)))


FLOATS = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("source", FLOATS, ids=str)
@pytest.mark.parametrize("target", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_conversions_round_to_nearest_even_and_saturate(source: torch.dtype, target: torch.dtype) -> None:
    values = torch.cat(
        [torch.randn(1000) * 10.0 ** torch.randint(-6, 4, (1000,)), torch.tensor([0.0, -0.0, 127.9, 463.0] * 6)]
    )
    values = values.to(source)
    out = torch.empty(1024, dtype=target)
    _convert[(1,)](values, out, 1024)
    limit = torch.finfo(target).max
    expected = (values.float().clamp(-limit, limit) if target.itemsize == 1 else values).to(target)
    assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("source", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_every_byte_reads_as_the_number_it_is(source: torch.dtype) -> None:
    values = torch.arange(256, dtype=torch.uint8).view(source)
    out = torch.empty(256, dtype=torch.float32)
    _convert[(1,)](values, out, 256)
    torch.testing.assert_close(out, values.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_arithmetic_and_comparison(dtype: torch.dtype) -> None:
    a, b = torch.randn(2, 512).to(dtype)
    out = torch.empty_like(a)
    _arithmetic[(1,)](a, b, out, 512)
    expected = torch.where(a > b, a * b + a, a - b)
    tolerance = torch.finfo(dtype).eps * 2  # fp32 may fuse the product and the sum
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn], ids=str)
def test_matrix_product(dtype: torch.dtype) -> None:
    a, b = torch.randn(32, 32).to(dtype), torch.randn(32, 32).to(dtype)
    out = torch.empty(32, 32)
    _product[(1,)](a, b, out, 32)
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-5, atol=1e-5)
