"""What needs no perplexity: one layer's product in several formats, sizes of attention's caches, lossless coding."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from steelyard_kernels.attention.decode import paged_decode
from steelyard_kernels.attention.mla import mla_decode
from steelyard_kernels.compare import weights
from steelyard_kernels.compare.subject import Subject
from steelyard_kernels.compare.weights import fp8_inputs, int8_inputs
from steelyard_kernels.lossless import exponents
from steelyard_kernels.quant.fp8 import quantize_fp8
from steelyard_kernels.quant.groups import quantize_groups
from steelyard_kernels.quant.smooth import smoothing_scale
from steelyard_kernels.quant.statistics import Statistics

LAYER_LINEAR = "model.layers.0.self_attn.q_proj"
CONTEXT, BLOCK, REPEATS = 1024, 16, 5
HEADS, WIDTH, LATENT, ROTARY = 16, 64, 256, 32


@torch.no_grad()
def one_layer(subject: Subject) -> list[dict[str, Any]]:
    """‖y − ŷ‖ / ‖y‖ of one linear over a window, weights and inputs rounded as each format does."""
    seen = Statistics.empty(subject.model.weights[f"{LAYER_LINEAR}.weight"].shape[1])
    inputs: list[Tensor] = []

    def see(name: str, x: Tensor) -> Tensor:
        if name == LAYER_LINEAR:
            seen.add(x)
            inputs.append(x)
        return x

    subject.model.on_input = see
    subject.model.forward(subject.calibration[0])
    subject.model.on_input = None
    x, weight = inputs[0], subject.model.weights[f"{LAYER_LINEAR}.weight"]
    exact = x @ weight.T
    scale = smoothing_scale(seen.largest, [weight], weights.SMOOTH)
    found = {
        "FP8 weights and inputs": fp8_inputs("", x) @ quantize_fp8(weight, "row").dequantize().T,
        "FP8, blocks of 128": quantize_fp8(x, "group").dequantize() @ quantize_fp8(weight, "block").dequantize().T,
        "INT8 weights and inputs": int8_inputs("", x) @ _eight(weight).T,
        "INT8 after SmoothQuant": int8_inputs("", x / scale) @ _eight(weight * scale).T,
        "NF4 weights": x @ weights.double_nf4("", weight, seen).T,
        "INT4 RTN g64 weights": x @ quantize_groups(weight, 4, weights.GROUP).dequantize().T,
    }
    return [{"name": name, "error": ((y - exact).norm() / exact.norm()).item()} for name, y in found.items()]


def _eight(weight: Tensor) -> Tensor:
    return quantize_groups(weight, 8, weight.shape[1]).dequantize()


def attention() -> list[dict[str, Any]]:
    """Bytes of cache a token and layer in bf16, and the time of one decode step over CONTEXT tokens: the reference's on this CPU,
    and the kernel's where there is a GPU (else None).

    The same 16 query heads of 64 everywhere; MLA keeps a latent of 256 and a rotary part of 32.
    """
    kinds: list[tuple[str, int, Callable[[str], Callable[[], object]]]] = [
        ("MHA, 16 key heads", 2 * 16 * WIDTH, partial(_paged_step, 16)),
        ("GQA, 4 key heads", 2 * 4 * WIDTH, partial(_paged_step, 4)),
        ("MQA, 1 key head", 2 * WIDTH, partial(_paged_step, 1)),
        ("MLA, latent 256 + 32", LATENT + ROTARY, _mla_step),
    ]
    return [
        {
            "name": name,
            "bytes_per_token": 2 * values,
            "cpu_reference_us": _seconds(make("cpu")) * 1e6,
            "gpu_us": triton.testing.do_bench(make("cuda")) * 1e3 if torch.cuda.is_available() else None,
        }
        for name, values, make in kinds
    ]


def _paged_step(kv_heads: int, device: str) -> Callable[[], object]:
    kind = torch.float32 if device == "cpu" else torch.bfloat16
    keys, values = (torch.randn(CONTEXT // BLOCK, BLOCK, kv_heads, WIDTH, dtype=kind, device=device) for _ in range(2))
    query = torch.randn(1, HEADS, WIDTH, dtype=kind, device=device)
    return partial(paged_decode, query, keys, values, *_pages(device))


def _mla_step(device: str) -> Callable[[], object]:
    kind = torch.float32 if device == "cpu" else torch.bfloat16
    latents = torch.randn(CONTEXT // BLOCK, BLOCK, LATENT + ROTARY, dtype=kind, device=device)
    absorbed, turned = (torch.randn(1, HEADS, size, dtype=kind, device=device) for size in (LATENT, ROTARY))
    return partial(mla_decode, absorbed, turned, latents, *_pages(device), (WIDTH + ROTARY) ** -0.5)


def _pages(device: str) -> tuple[Tensor, Tensor]:
    """The table of pages and the length of one sequence of CONTEXT tokens."""
    return torch.arange(CONTEXT // BLOCK, device=device).unsqueeze(0), torch.tensor([CONTEXT], device=device)


def _seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def lossless(subject: Subject) -> list[dict[str, Any]]:
    """Size after coding as a share of bf16, the entropy's bound, and whether every bit came back."""
    real = torch.cat([subject.model.weights[f"{name}.weight"].flatten() for name in subject.linears()[:7]])
    found = []
    for name, tensor in (("SmolLM2's first layer, once 4 bits", real), ("a tiny model, trained here", _trained())):
        tensor = tensor.bfloat16()
        coded = exponents.encode(tensor)
        same = torch.equal(exponents.decode(coded).view(torch.int16), tensor.view(torch.int16))
        share = coded.nbytes() / tensor.nbytes
        found.append({"name": name, "share": share, "bound": exponents.entropy_bits(tensor) / 16, "exact": same})
    return found


def _trained(steps: int = 300) -> Tensor:
    """The weights of a small network that learned to add digits' embeddings: trained from a normal start, never quantized."""
    generator = torch.Generator().manual_seed(3)
    first = (torch.randn(256, 128, generator=generator) / 128**0.5).requires_grad_()
    second = (torch.randn(64, 256, generator=generator) / 16).requires_grad_()
    target = torch.randn(64, 128, generator=generator) / 128**0.5
    optimizer = torch.optim.AdamW([first, second], lr=3e-3)
    for _ in range(steps):
        x = torch.randn(64, 128, generator=generator)
        loss = F.mse_loss(F.silu(x @ first.T) @ second.T, torch.tanh(x @ target.T))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.cat([part.detach().flatten() for part in (first, second)])
