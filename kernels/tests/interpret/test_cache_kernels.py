import pytest
import torch

from closeness import assert_near
from steelyard_kernels.kv import affine
from steelyard_kernels.kv.kivi_attention import scores, scores_ref, weighted, weighted_ref
from steelyard_kernels.kv.scaled import quantize_tokens, quantize_tokens_ref

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 64), (3, 37, 80), (2, 5, 7)])
@pytest.mark.parametrize("kind", ["int8", "fp8"])
@pytest.mark.parametrize("fixed_scale", [None, 0.01])
def test_quantizing_tokens(dtype: torch.dtype, shape: tuple[int, ...], kind, fixed_scale: float | None) -> None:
    values = torch.randn(shape).to(dtype)
    kernel, reference = quantize_tokens(values, kind, fixed_scale), quantize_tokens_ref(values, kind, fixed_scale)
    assert torch.equal(kernel.codes.view(torch.uint8), reference.codes.view(torch.uint8))
    assert_near(kernel.scale, reference.scale)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("heads", "repeat", "width", "tokens", "group"), [(1, 1, 32, 32, 32), (3, 3, 64, 160, 32), (2, 4, 128, 256, 64)]
)
@pytest.mark.parametrize("bits", [2, 4])
def test_scores_over_packed_keys(
    dtype: torch.dtype, heads: int, repeat: int, width: int, tokens: int, group: int, bits: int
) -> None:
    keys = affine.quantize(torch.randn(heads, width, tokens), bits, group)
    query = torch.randn(heads * repeat, width).to(dtype)
    assert_near(scores(query, keys), scores_ref(query, keys))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("heads", "repeat", "width", "tokens", "group"), [(1, 1, 32, 1, 32), (3, 3, 64, 77, 32), (2, 4, 128, 130, 64)]
)
@pytest.mark.parametrize("bits", [2, 4])
def test_weighing_packed_values(
    dtype: torch.dtype, heads: int, repeat: int, width: int, tokens: int, group: int, bits: int
) -> None:
    values = affine.quantize(torch.randn(heads, tokens, width), bits, group)
    probabilities = torch.randn(heads * repeat, tokens).softmax(-1).to(dtype)
    assert_near(weighted(probabilities, values), weighted_ref(probabilities, values))
