import pytest
import torch
from compressed_tensors.compressors.nvfp4.helpers import quantize_and_pack_fp4
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
from compressed_tensors.quantization.utils.mxfp_utils import generate_mx_scales
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.integrations.bitnet import pack_weights

from closeness import relative_error
from steelyard_kernels.gemm.fp8 import fp8_matmul
from steelyard_kernels.quant import fp4, nf4, ternary
from steelyard_kernels.quant.fp8 import quantize_fp8, quantize_fp8_static
from steelyard_kernels.quant.groups import quantize_groups

MAGNITUDES = [1e-6, 0.02, 1.0, 4096.0]


def values(rows: int, inputs: int, magnitude: float, seed: int = 0) -> torch.Tensor:
    """Normal numbers with a few outliers, zeros and exact ties."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=generator) * magnitude
    x[0, :3] = torch.tensor([0.0, -0.0, 20 * magnitude])
    x[:, 5] = x[:, 5].round(decimals=1)
    return x


@pytest.mark.parametrize(
    ("granularity", "shape"), [("tensor", (1, 1)), ("row", (200, 1)), ("block", (2, 3)), ("group", (200, 3))]
)
def test_fp8_has_a_scale_for_each_tile_and_errors_below_half_a_unit(granularity, shape: tuple[int, int]) -> None:
    x = values(200, 300, 1.0)
    quantized = quantize_fp8(x, granularity)
    assert quantized.scale.shape == shape
    scale = quantized.scale.repeat_interleave(quantized.tall, 0)[:200].repeat_interleave(quantized.wide, 1)[:, :300]
    # Half a unit of 3 bits of mantissa, or of the smallest subnormal, 2^-9.
    allowed = torch.maximum(x.abs() * 2**-4, scale * 2**-10) * 1.001
    assert ((quantized.dequantize() - x).abs() <= allowed).all()


def test_fp8_saturates_instead_of_becoming_nan() -> None:
    quantized = quantize_fp8_static(torch.tensor([[1000.0, -1000.0, 448.0, 465.0]]), 1.0)
    assert quantized.dequantize().tolist() == [[448.0, -448.0, 448.0, 448.0]]


def test_fp8_is_torchs_scaled_product() -> None:
    x, weight = quantize_fp8(values(16, 64, 1.0), "tensor"), quantize_fp8(values(32, 64, 0.02), "tensor")
    theirs = torch._scaled_mm(
        x.codes, weight.codes.t(), x.scale.reshape(()), weight.scale.reshape(()), out_dtype=torch.float32
    )
    assert relative_error(fp8_matmul(x, weight), theirs) < 1e-5


def test_an_unknown_granularity_is_refused() -> None:
    with pytest.raises(ValueError, match="granularity is 'column'"):
        quantize_fp8(torch.zeros(2, 2), "column")  # type: ignore[arg-type]


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), magnitude=st.sampled_from(MAGNITUDES))
def test_e2m1_takes_the_nearest_value_and_the_even_code_on_a_tie(seed: int, magnitude: float) -> None:
    x = values(4, 32, magnitude, seed).clamp(-6, 6)
    x[1] = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25] * 4)
    codes = fp4.encode(x)
    error = (fp4.decode(codes) - x).abs()
    every = (fp4.decode(torch.arange(16, dtype=torch.uint8)) - x.unsqueeze(-1)).abs()
    assert torch.equal(error, every.amin(-1))
    tied = (every == error.unsqueeze(-1)).sum(-1) > 1
    nonzero = codes & 7 > 0  # both zeros are nearest to zero
    assert (codes[tied & nonzero] % 2 == 0).all()


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nvfp4_is_compressed_tensors_bit_for_bit(magnitude: float, dtype: torch.dtype) -> None:
    weight = values(24, 64, magnitude).to(dtype)
    weight[3] = 0  # a row of empty blocks
    ours = fp4.quantize_nvfp4(weight)
    arguments = QuantizationArgs(
        num_bits=4,
        type="float",
        symmetric=True,
        strategy="tensor_group",
        group_size=16,
        scale_dtype=torch.float8_e4m3fn,
    )
    full = weight.float()
    g = generate_gparam(full.amin(), full.amax())
    blocks = full.unflatten(-1, (-1, 16))
    scale, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), arguments, global_scale=g)
    assert torch.equal(ours.global_scale, g)
    assert torch.equal(ours.scale.view(torch.uint8), scale.to(torch.float8_e4m3fn).view(torch.uint8))
    assert torch.equal(ours.packed, quantize_and_pack_fp4(full, scale, global_scale=g, group_size=16))


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_mxfp4_is_compressed_tensors_bit_for_bit(magnitude: float, dtype: torch.dtype) -> None:
    weight = values(24, 96, magnitude).to(dtype)
    weight[2, :32] = torch.linspace(0, 1.75, 32) * magnitude  # a mantissa of exactly 1.75 counts as the next power
    ours = fp4.quantize_mxfp4(weight)
    largest = weight.float().unflatten(-1, (-1, 32)).abs().amax(-1)
    assert torch.equal(ours.scale, generate_mx_scales(largest).to(torch.uint8))
    step = torch.exp2(ours.scale.float() - 127)
    assert torch.equal(ours.packed, quantize_and_pack_fp4(weight.float(), step, group_size=32))


def test_fused_layers_share_a_global_scale() -> None:
    small, large = values(8, 32, 0.1), values(8, 32, 10.0, seed=1)
    shared = fp4.global_scale(small, large)
    assert torch.equal(shared, fp4.global_scale(large))
    assert torch.equal(fp4.quantize_nvfp4(small, shared).global_scale, fp4.quantize_nvfp4(large, shared).global_scale)


def test_nf4_has_levels_of_equal_probability_around_an_exact_zero() -> None:
    levels = torch.tensor(nf4.LEVELS)
    assert levels[7] == 0
    assert (levels.diff() > 0).all()
    weight = torch.randn(64, 256)
    quantized = nf4.quantize_nf4(weight)
    blocks = weight.unflatten(-1, (-1, nf4.BLOCK))
    scaled = blocks / blocks.abs().amax(-1, keepdim=True)
    nearest = (scaled.unsqueeze(-1) - levels).abs().amin(-1)
    error = (quantized.dequantize().unflatten(-1, (-1, nf4.BLOCK)) - blocks).abs() / blocks.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(error, nearest, atol=1e-6, rtol=0)
    counts = torch.bincount(torch.stack([quantized.packed >> 4, quantized.packed & 15]).flatten().long(), minlength=16)
    assert counts[1:15].max() < 4 * counts[1:15].min(), "normal weights use every level"


def test_nf4_beats_integers_of_the_same_size_on_normal_weights() -> None:
    weight = torch.randn(32, 256)
    integers = relative_error(quantize_groups(weight, 4, nf4.BLOCK).dequantize(), weight)
    assert relative_error(nf4.quantize_nf4(weight).dequantize(), weight) < 0.95 * integers


def test_double_quantization_costs_an_eighth_of_a_bit_and_hardly_an_error() -> None:
    largest = nf4.quantize_nf4(torch.randn(512, 512)).largest
    small = nf4.quantize_scales(largest)
    bits = 8 * (small.codes.nbytes + small.scale.nbytes + small.mean.nbytes) / (largest.numel() * nf4.BLOCK)
    assert bits < 0.128
    assert relative_error(small.dequantize(), largest.flatten()) < 0.01


def test_ternary_packings_return_what_they_got() -> None:
    packed_as = torch.randint(-1, 2, (16, 23), dtype=torch.int8)
    assert torch.equal(ternary.unpack_quarters(ternary.pack_quarters(packed_as)), packed_as)
    assert torch.equal(ternary.unpack_fives(ternary.pack_fives(packed_as), 23), packed_as)
    assert ternary.pack_fives(packed_as).shape == (16, 5)
    assert torch.equal(ternary.pack_quarters(packed_as), pack_weights(packed_as.clone()))


def test_a_ternary_product_is_exact() -> None:
    weight, x = torch.randn(16, 40), torch.randn(3, 40)
    packed_as, scale = ternary.ternarize(weight)
    codes, step = ternary.quantize_activations(x)
    product = ternary.ternary_matmul(codes, ternary.pack_quarters(packed_as)) * step * scale
    torch.testing.assert_close(product, (codes * step) @ (packed_as * scale).T, atol=1e-4, rtol=1e-4)


def test_a_bitlinear_learns_what_three_values_can_say() -> None:
    target = torch.randint(-1, 2, (8, 16)).float()
    layer = ternary.BitLinear(16, 8)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    x = torch.randn(256, 16)
    goal = torch.nn.functional.rms_norm(x, (16,)) @ target.T
    losses = []
    for _ in range(150):
        loss = (layer(x) - goal).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert ternary.ternarize(layer.weight.detach())[0].unique().tolist() == [-1, 0, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: fp4.quantize_nvfp4(torch.zeros(2, 24)),
        lambda: fp4.quantize_mxfp4(torch.zeros(2, 48)),
        lambda: nf4.quantize_nf4(torch.zeros(2, 96)),
        lambda: ternary.pack_quarters(torch.zeros(6, 4, dtype=torch.int8)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call) -> None:
    with pytest.raises(ValueError, match="do not"):
        call()
