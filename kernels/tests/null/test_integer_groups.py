import pytest
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard_kernels.gemm.packed import packed_matmul
from steelyard_kernels.quant.groups import pack, quantize_groups, unpack


@settings(max_examples=40)
@given(bits=st.sampled_from([1, 2, 4, 8]), words=st.integers(1, 9), rows=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_unpacking_returns_what_was_packed(bits: int, words: int, rows: int, seed: int) -> None:
    codes = torch.randint(0, 2**bits, (rows, words * 32 // bits), generator=torch.Generator().manual_seed(seed))
    packed = pack(codes.to(torch.uint8), bits)
    assert packed.shape == (rows, words)
    assert torch.equal(unpack(packed, bits).long(), codes)


@pytest.mark.parametrize("bits", [4, 8])
def test_packing_is_that_of_compressed_tensors(bits: int) -> None:
    half = 2 ** (bits - 1)
    signed = torch.randint(-half, half, (6, 96), dtype=torch.int8)
    ours = pack((signed.int() + half).to(torch.uint8), bits)
    assert torch.equal(ours, pack_to_int32(signed, bits))


@settings(max_examples=60)
@given(
    bits=st.integers(2, 8),
    group=st.sampled_from([5, 16, 64]),
    groups=st.integers(1, 4),
    symmetric=st.booleans(),
    magnitude=st.sampled_from([1e-4, 1.0, 300.0]),
    seed=st.integers(0, 2**31),
)
def test_no_value_moves_by_more_than_half_a_step(
    bits: int, group: int, groups: int, symmetric: bool, magnitude: float, seed: int
) -> None:
    weight = torch.randn(3, group * groups, generator=torch.Generator().manual_seed(seed)) * magnitude
    quantized = quantize_groups(weight, bits, group, symmetric)
    step = quantized.scale.repeat_interleave(group, dim=1)
    # The zero is rounded, so an asymmetric group's ends may be half a step further out.
    allowed = step * (0.5 if symmetric else 1.0) * 1.001
    assert ((weight - quantized.dequantize()).abs() <= allowed).all()


def test_codes_grow_with_the_values() -> None:
    weight = torch.randn(1, 64).sort().values
    codes = quantize_groups(weight, 4, 64).codes.int()
    assert (codes.diff() >= 0).all()


def test_a_group_of_zeros_stays_zero() -> None:
    assert torch.equal(quantize_groups(torch.zeros(2, 32), 4, 16).dequantize(), torch.zeros(2, 32))


@pytest.mark.parametrize(("bits", "group", "field"), [(9, 16, "bits"), (0, 16, "bits"), (4, 24, "group")])
def test_a_refusal_names_the_field_and_its_value(bits: int, group: int, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is {bits if field == 'bits' else group}"):
        quantize_groups(torch.zeros(2, 64), bits, group)


def test_a_product_with_the_wrong_width_is_refused() -> None:
    quantized = quantize_groups(torch.randn(8, 64), 4, 32)
    with pytest.raises(ValueError, match="x has 32 inputs but the packed weight has 64"):
        packed_matmul(torch.randn(2, 32), pack(quantized.codes, 4), quantized.scale, quantized.zero, 4)
