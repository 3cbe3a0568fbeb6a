"""GPTQ's, AWQ's, bitsandbytes' and our ternary file layouts: examples by hand, and what was packed comes back."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steelyard_kernels.formats import awq, bitsandbytes, gptq, ternary
from steelyard_kernels.quant.groups import Groups, quantize_groups
from steelyard_kernels.quant.nf4 import quantize_nf4
from steelyard_kernels.quant.ternary import ternarize


def counted(outputs: int, inputs: int) -> Groups:
    """Codes that name their place: (output + input) mod 16, in one group."""
    codes = (torch.arange(outputs)[:, None] + torch.arange(inputs)[None, :]) % 16
    return Groups(codes.to(torch.uint8), torch.full((outputs, 1), 0.5), torch.full((outputs, 1), 8.0), 4)


def test_gptq_packs_along_the_inputs_with_the_first_lowest() -> None:
    tensors = gptq.tensors_of(counted(8, 16))
    assert tensors["qweight"].shape == (2, 8)
    assert tensors["qweight"][0, 0].item() == 0x76543210
    assert tensors["qweight"][1, 0].item() & 0xFFFFFFFF == 0xFEDCBA98
    assert tensors["qweight"][0, 1].item() & 0xFFFFFFFF == 0x87654321
    assert tensors["qzeros"].tolist() == [[0x77777777]]  # zero − 1 = 7 for each of eight outputs
    assert tensors["scales"].shape == (1, 8)
    assert tensors["g_idx"].tolist() == [0] * 16


def test_awq_packs_along_the_outputs_in_its_kernels_order() -> None:
    tensors = awq.tensors_of(counted(8, 16))
    assert tensors["qweight"].shape == (16, 1)
    assert tensors["qweight"][0, 0].item() == 0x75316420  # outputs 0 2 4 6 1 3 5 7 from the lowest bits
    assert tensors["qzeros"].item() & 0xFFFFFFFF == 0x88888888


@given(
    outputs=st.sampled_from([8, 24]), groups=st.integers(1, 3), bits=st.sampled_from([4, 8]), seed=st.integers(0, 999)
)
def test_what_gptq_stores_comes_back(outputs: int, groups: int, bits: int, seed: int) -> None:
    weight = torch.randn(outputs, groups * 32, generator=torch.Generator().manual_seed(seed))
    codes = quantize_groups(weight, bits, 32)
    codes = codes._replace(scale=codes.scale.half().float())
    back = gptq.codes_of(gptq.tensors_of(codes), bits)
    assert torch.equal(back.codes, codes.codes)
    assert torch.equal(back.dequantize(), codes.dequantize())


@given(outputs=st.sampled_from([8, 24]), groups=st.integers(1, 3), seed=st.integers(0, 999))
def test_what_awq_stores_comes_back_with_its_zero_points(outputs: int, groups: int, seed: int) -> None:
    weight = torch.randn(outputs, groups * 32, generator=torch.Generator().manual_seed(seed)) + 0.3
    codes = quantize_groups(weight, 4, 32, symmetric=False)
    codes = codes._replace(scale=codes.scale.half().float())
    back = awq.codes_of(awq.tensors_of(codes))
    assert torch.equal(back.zero, codes.zero)
    assert torch.equal(back.dequantize(), codes.dequantize())


def test_ternary_takes_two_bits_and_comes_back() -> None:
    found = ternarize(torch.randn(6, 48))
    tensors = ternary.tensors_of(found)
    assert tensors["weight_packed"].nbytes * 8 == 2 * found.values.numel()
    assert torch.equal(ternary.values_of(tensors["weight_packed"]), found.values)


def test_nf4_says_its_shape_and_keeps_its_bytes() -> None:
    found = quantize_nf4(torch.randn(6, 128))
    tensors = bitsandbytes.tensors_of(found)
    state = json.loads(bytes(tensors["weight.quant_state.bitsandbytes__nf4"].tolist()))
    assert state == {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [6, 128]}
    assert torch.equal(tensors["weight"].view(6, 64), found.packed)
    assert tensors["weight.absmax"].shape == (12,)


@pytest.mark.parametrize(
    ("layout", "codes", "says"),
    [
        (gptq, quantize_groups(torch.randn(6, 32), 4, 32), "6 outputs do not fill"),
        (awq, quantize_groups(torch.randn(12, 32), 4, 32), "12 outputs"),
        (awq, quantize_groups(torch.randn(8, 32), 8, 32), "8 bits"),
        (ternary, ternarize(torch.randn(4, 24)), "24 inputs"),
    ],
)
def test_a_shape_that_the_layout_cannot_hold_is_refused(layout, codes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        layout.tensors_of(codes)
