"""Codes are chosen for the scales that a file keeps, which have 16 bits, not for the exact ones."""

import pytest
import torch

from steelyard_kernels.quant.fp8 import Fp8, quantize_fp8
from steelyard_kernels.quant.gptq import quantize_gptq
from steelyard_kernels.quant.groups import Groups, quantize_groups
from steelyard_kernels.quantize import codes
from steelyard_kernels.quantize.codes import Inputs
from steelyard_kernels.quantize.recipe import of

RECIPES = (
    ({"weights": "int8"}, torch.bfloat16),
    ({"weights": "int4-gptq", "method": "rtn"}, torch.float16),
    ({"weights": "int4-gptq", "method": "rtn", "layout": "compressed-tensors"}, torch.bfloat16),
    ({"weights": "int4-awq", "method": "rtn"}, torch.float16),
    ({"weights": "fp8", "method": "rtn"}, torch.bfloat16),
)


def nearest(weight: torch.Tensor, found: Groups) -> torch.Tensor:
    """The codes whose values lie nearest to the weight, [outputs, inputs]."""
    scale, zero = (part.repeat_interleave(weight.shape[1] // part.shape[1], 1) for part in (found.scale, found.zero))
    levels = torch.arange(2**found.bits).view(-1, 1, 1)
    return ((levels - zero) * scale - weight).abs().argmin(0).to(torch.uint8)


@pytest.mark.parametrize(("recipe", "kept"), RECIPES, ids=lambda one: str(one))
def test_a_recipes_codes_are_the_nearest_ones_of_its_files_scales(recipe: dict, kept: torch.dtype) -> None:
    weight = torch.randn(48, 256, generator=torch.Generator().manual_seed(2))
    found = codes.choose(of(recipe, "here"), 64, "model.layers.0.mlp.up_proj", weight, Inputs())
    assert torch.equal(found.scale.to(kept).float(), found.scale)
    if isinstance(found, Fp8):
        assert torch.equal((weight / found.scale).clamp(-448, 448).to(torch.float8_e4m3fn).float(), found.codes.float())
        exact = quantize_fp8(weight, "row")
        assert not torch.equal(exact.codes.float(), found.codes.float())
    else:
        assert torch.equal(found.codes, nearest(weight, found))
        exact = quantize_groups(
            weight, found.bits, weight.shape[1] // found.scale.shape[1], bool((found.zero == 128).all())
        )
        assert not torch.equal(exact.scale, found.scale)


@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float16], ids=str)
def test_gptq_without_correlated_inputs_rounds_to_the_kept_scales(kept: torch.dtype) -> None:
    weight = torch.randn(16, 128, generator=torch.Generator().manual_seed(4))
    found = quantize_gptq(weight, torch.eye(128), 4, 64, kept=kept)
    plain = quantize_groups(weight, 4, 64, kept=kept)
    assert torch.equal(found.scale, plain.scale)
    assert torch.equal(found.codes, plain.codes)


@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_zeros_stay_zeros_whatever_the_type(kept: torch.dtype) -> None:
    for symmetric in (True, False):
        assert torch.equal(quantize_groups(torch.zeros(2, 32), 4, 16, symmetric, kept).dequantize(), torch.zeros(2, 32))
