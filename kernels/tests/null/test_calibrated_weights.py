"""GPTQ, AWQ and SmoothQuant on made-up layers, where the truth is known, and on SmolLM2's own activations."""

import itertools
import pydoc_data.topics as topics

import pytest
import torch
from torch import Tensor

from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quant.awq import quantize_clipped, search_scale
from steelyard_kernels.quant.fp8 import quantize_fp8
from steelyard_kernels.quant.gptq import output_error, quantize_gptq, quantize_gptq_fp8
from steelyard_kernels.quant.groups import quantize_groups
from steelyard_kernels.quant.smooth import smoothing_scale
from steelyard_kernels.quant.statistics import Statistics, collect

BITS, GROUP = 3, 64  # SmolLM2's weights lie on a grid of 4 bits already, so 4 bits would show nothing
NAMES = ("model.layers.3.self_attn.q_proj", "model.layers.3.self_attn.o_proj", "model.layers.3.mlp.gate_proj")


@pytest.fixture(scope="module")
def calibration(checkpoint: gguf.Checkpoint, model: Llama) -> tuple[dict[str, Statistics], dict[str, Statistics]]:
    """Statistics of NAMES over 512 tokens, and over 256 others that the quantizers do not see."""
    tokens = torch.tensor(checkpoint.tokenizer.encode(topics.topics["assignment"] + topics.topics["class"]).ids)
    assert len(tokens) >= 768
    return collect(model, tokens[:512].view(2, 256), NAMES), collect(model, tokens[512:768].view(1, 256), NAMES)


def correlated(inputs: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Inputs [tokens, inputs] that depend on each other, and their H."""
    x = torch.randn(tokens, inputs // 2) @ torch.randn(inputs // 2, inputs) + 0.3 * torch.randn(tokens, inputs)
    return x, x.T @ x


@pytest.mark.parametrize("by_activation", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("group", [32, 96, 192])  # one that divides the block of 128, two that do not
def test_gptq_beats_rounding_when_inputs_depend_on_each_other(by_activation: bool, symmetric: bool, group: int) -> None:
    _, hessian = correlated(192, 600)
    weight = torch.randn(24, 192)
    rounded = quantize_groups(weight, 3, group, symmetric).dequantize()
    better = quantize_gptq(weight, hessian, 3, group, symmetric, by_activation).dequantize()
    assert output_error(weight, better, hessian) < 0.6 * output_error(weight, rounded, hessian)


@pytest.mark.parametrize("inputs", [96, 192, 320])
def test_gptq_beats_rounding_to_fp8_with_the_same_scales(inputs: int) -> None:
    _, hessian = correlated(inputs, 4 * inputs)
    weight = torch.randn(24, inputs)
    rounded, better = quantize_fp8(weight, "row"), quantize_gptq_fp8(weight, hessian)
    torch.testing.assert_close(better.scale, rounded.scale, rtol=2**-8, atol=0)  # a file keeps it in bf16
    assert torch.isfinite(better.dequantize()).all()
    assert output_error(weight, better.dequantize(), hessian) < 0.6 * output_error(
        weight, rounded.dequantize(), hessian
    )


def test_gptq_is_rounding_when_inputs_are_independent() -> None:
    weight = torch.randn(8, 64)
    ours, plain = quantize_gptq(weight, torch.eye(64), 4, 32), quantize_groups(weight, 4, 32)
    # Codes may differ on ties only, which cost the same either way.
    errors = [output_error(weight, one.dequantize(), torch.eye(64)) for one in (ours, plain)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-5)
    assert (ours.codes.int() - plain.codes.int()).abs().max() <= 1


def test_gptq_finds_the_best_rounding_of_a_small_problem() -> None:
    """Against every way of rounding three weights up or down, GPTQ comes near the best, and RTN does not."""
    hessian = torch.tensor([[2.0, 1.9, 0.0], [1.9, 2.0, 0.0], [0.0, 0.0, 1.0]])
    weight = torch.tensor([[0.44, 0.44, 1.0]])
    plain, ours = quantize_groups(weight, 2, 3), quantize_gptq(weight, hessian, 2, 3)
    assert torch.equal(plain.scale, ours.scale)
    levels = [(code - 2) * plain.scale.item() for code in range(4)]
    best = min(output_error(weight, torch.tensor([choice]), hessian) for choice in itertools.product(levels, repeat=3))
    assert output_error(weight, ours.dequantize(), hessian) <= best * 1.001
    assert output_error(weight, plain.dequantize(), hessian) > best * 1.5


def test_gptq_drops_an_input_that_never_came() -> None:
    _, hessian = correlated(64, 300)
    hessian[5], hessian[:, 5] = 0, 0
    quantized = quantize_gptq(torch.randn(4, 64), hessian, 4, 32, symmetric=True)
    assert torch.isfinite(quantized.dequantize()).all()
    assert not quantized.dequantize()[:, 5].any()


def test_gptq_refuses_what_it_cannot_use() -> None:
    with pytest.raises(ValueError, match="group is 24"):
        quantize_gptq(torch.zeros(2, 64), torch.eye(64), 4, 24)
    with pytest.raises(ValueError, match="not finite"):
        quantize_gptq(torch.full((2, 64), torch.nan), torch.eye(64), 4, 32)


@pytest.mark.parametrize("name", NAMES)
def test_on_a_real_layer_gptq_and_awq_beat_rounding_on_text_they_did_not_see(
    name: str, model: Llama, calibration: tuple[dict[str, Statistics], dict[str, Statistics]]
) -> None:
    seen, unseen = (part[name] for part in calibration)
    weight = model.weights[f"{name}.weight"]
    rounded = quantize_groups(weight, BITS, GROUP).dequantize()
    gptq = quantize_gptq(weight, seen.hessian, BITS, GROUP, by_activation=True).dequantize()
    scale = search_scale([weight], seen.magnitude(), seen.hessian, BITS, GROUP)
    scaled_hessian = seen.hessian / scale[:, None] / scale[None, :]
    awq = quantize_clipped(weight * scale, scaled_hessian, BITS, GROUP).dequantize() / scale
    error = {
        method: output_error(weight, found, unseen.hessian)
        for method, found in (("rtn", rounded), ("gptq", gptq), ("awq", awq))
    }
    assert error["gptq"] < error["rtn"]
    assert error["awq"] < error["rtn"]


def test_awq_protects_the_inputs_that_are_large() -> None:
    x = torch.randn(400, 64)
    x[:, 7] *= 30
    weight, hessian = torch.randn(16, 64), x.T @ x
    scale = search_scale([weight], x.abs().mean(0), hessian, 3, 64)
    assert scale[7] > 2 * scale.median()
    scaled = quantize_groups(weight * scale, 3, 64).dequantize() / scale
    assert output_error(weight, scaled, hessian) < 0.5 * output_error(
        weight, quantize_groups(weight, 3, 64).dequantize(), hessian
    )


def test_clipping_gives_up_an_outlier_for_all_the_others() -> None:
    weight = torch.randn(4, 64)
    weight[:, 0] = 6.0
    hessian = torch.eye(64)
    hessian[0, 0] = 0.01  # the outlier is hardly ever asked for
    clipped, plain = (
        quantize(weight).dequantize()
        for quantize in (lambda w: quantize_clipped(w, hessian, 3, 64), lambda w: quantize_groups(w, 3, 64))
    )
    assert output_error(weight, clipped, hessian) < 0.7 * output_error(weight, plain, hessian)


def quantized_eight_bits(x: Tensor) -> Tensor:
    """One symmetric scale for the whole tensor."""
    step = x.abs().max() / 127
    return (x / step).round() * step


@pytest.mark.parametrize("strength", [0.5, 0.85])
def test_smoothing_changes_nothing_but_what_rounding_costs(strength: float) -> None:
    x, weight = torch.randn(100, 64), torch.randn(32, 64)
    x[:, 9] *= 80
    scale = smoothing_scale(x.abs().amax(0), [weight], strength)
    exact = x @ weight.T
    torch.testing.assert_close((x / scale) @ (weight * scale).T, exact, atol=1e-3, rtol=1e-3)
    plain = quantized_eight_bits(x) @ quantized_eight_bits(weight).T
    smooth = quantized_eight_bits(x / scale) @ quantized_eight_bits(weight * scale).T
    assert (smooth - exact).norm() < 0.5 * (plain - exact).norm()


def test_a_strength_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strength is 1\.5"):
        smoothing_scale(torch.ones(4), [torch.ones(2, 4)], 1.5)


def test_statistics_are_those_of_the_inputs(model: Llama) -> None:
    seen: list[Tensor] = []
    model.on_input = lambda name, x: (seen.append(x) if name == NAMES[0] else None, x)[1]
    tokens = torch.arange(24).view(2, 12) + 100
    with torch.no_grad():
        for window in tokens:
            model.forward(window)
    model.on_input = None
    found, x = collect(model, tokens, NAMES[:1])[NAMES[0]], torch.cat(seen)
    assert found.tokens == 24
    torch.testing.assert_close(found.hessian, x.T @ x, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.magnitude(), x.abs().mean(0))
    assert torch.equal(found.largest, x.abs().amax(0))
