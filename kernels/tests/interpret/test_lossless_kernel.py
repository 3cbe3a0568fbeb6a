import pytest
import torch

from steelyard_kernels.lossless.exponents import CHUNK, Coded, encode, exponents, exponents_ref


@pytest.mark.parametrize("count", [1, 300, 70 * CHUNK + 13])
def test_exponents(count: int) -> None:
    coded = encode((torch.randn(count, device="cpu") * 0.02).bfloat16())
    chunks = len(coded.starts)
    expected = exponents_ref(coded, 0, chunks)[:count]
    there = torch.empty(0).device
    moved = Coded(coded.rest, coded.stream.to(there), coded.starts.to(there), coded.lengths, coded.shape)
    assert torch.equal(exponents(moved, 0, chunks)[:count].cpu(), expected)
