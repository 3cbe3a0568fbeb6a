"""What each weight format costs SmolLM2 in perplexity: `python -m e2e.kernels run -- bench/quality.py OUT.json`.

Weights are replaced by what their codes mean, so figures show the formats' error and no kernel's. Evaluation: the first windows of
the GPL-3 as Debian ships it; calibration: the standard library's `pydoc_data.topics`. SmolLM2's weights went through 4 bits once,
so integers are compared at 3 bits, groups of 64. Windows are 128 tokens long, and at least 16 of them make a claim.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pydoc_data.topics as topics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama, negative_log_likelihood
from steelyard_kernels.quant import fp4, nf4
from steelyard_kernels.quant.awq import quantize_clipped, search_scale
from steelyard_kernels.quant.fp8 import quantize_fp8
from steelyard_kernels.quant.gptq import quantize_gptq
from steelyard_kernels.quant.groups import quantize_groups
from steelyard_kernels.quant.statistics import Statistics, collect
from steelyard_kernels.rotation.hadamard import random_rotation
from steelyard_kernels.rotation.quarot import rotated, turn_down

BITS, GROUP, WINDOW = 3, 64, 128
Change = Callable[[str, Tensor, Statistics], Tensor]


def rtn(bits: int) -> Change:
    """Round to nearest, symmetric groups."""
    return lambda name, weight, seen: quantize_groups(weight, bits, GROUP).dequantize()


def gptq(name: str, weight: Tensor, seen: Statistics) -> Tensor:
    """GPTQ, most active columns first."""
    return quantize_gptq(weight, seen.hessian, BITS, GROUP, by_activation=True).dequantize()


def awq(name: str, weight: Tensor, seen: Statistics) -> Tensor:
    """AWQ, each linear with a scale of its own; q and k are not clipped."""
    scale = search_scale([weight], seen.magnitude(), seen.hessian, BITS, GROUP)
    if name.endswith(("q_proj", "k_proj")):
        return quantize_groups(weight * scale, BITS, GROUP).dequantize() / scale
    return quantize_clipped(weight * scale, seen.hessian / scale[:, None] / scale, BITS, GROUP).dequantize() / scale


FORMATS: dict[str, tuple[float, Change]] = {
    "bf16": (16, lambda name, weight, seen: weight),
    "fp8, a scale a channel": (8, lambda name, weight, seen: quantize_fp8(weight, "row").dequantize()),
    "nvfp4": (4.5, lambda name, weight, seen: fp4.quantize_nvfp4(weight).dequantize()),
    "mxfp4": (4.25, lambda name, weight, seen: fp4.quantize_mxfp4(weight).dequantize()),
    "nf4, double quantization": (4.127, lambda name, weight, seen: double_nf4(weight)),
    "int4 rtn g64": (4.25, rtn(4)),
    "int3 rtn g64": (3.25, rtn(3)),
    "int3 awq g64": (3.25, awq),
    "int3 gptq g64": (3.25, gptq),
}


def double_nf4(weight: Tensor) -> Tensor:
    """NF4 with its magnitudes in 8 bits."""
    found = nf4.quantize_nf4(weight)
    return nf4.Nf4(found.packed, nf4.quantize_scales(found.largest).dequantize().view(found.largest.shape)).dequantize()


def four_bit_activations(name: str, x: Tensor) -> Tensor:
    """A symmetric scale a token, clipped at 0.9 of its maximum."""
    step = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) * 0.9 / 7
    return (x / step).round().clamp(-8, 7) * step


def w4a4(model: Llama, config: Mapping[str, Any], turned: bool) -> Llama:
    """Weights rounded to 4 bits a row, activations to 4 bits a token."""
    out = Llama(config, model.weights)
    for name in model.linears():
        weight = model.weights[f"{name}.weight"]
        out.weights[f"{name}.weight"] = quantize_groups(weight, 4, weight.shape[1]).dequantize()
    out.on_input = (lambda name, x: four_bit_activations(name, turn_down(name, x))) if turned else four_bit_activations
    return out


@torch.no_grad()
def main() -> None:
    """Measure, and write the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--text", type=Path, default=Path("/usr/share/common-licenses/GPL-3"))
    arguments = parser.parse_args()
    checkpoint = gguf.read(Path(os.environ["STEELYARD_GGUF"]))
    model = Llama(checkpoint.config, checkpoint.tensors)
    encode = checkpoint.tokenizer.encode
    evaluation = torch.tensor(encode(arguments.text.read_text()).ids[: arguments.windows * WINDOW])
    calibration = torch.tensor(encode("".join(topics.topics[name] for name in sorted(topics.topics))).ids[:2048]).view(
        -1, 256
    )
    results: list[dict[str, object]] = []

    def record(name: str, bits: float, one: Llama) -> None:
        started = time.monotonic()
        loss = negative_log_likelihood(one, evaluation, WINDOW)
        results.append({"name": name, "bits": bits, "perplexity": math.exp(loss)})
        print(f"{name}: {math.exp(loss):.3f} ({time.monotonic() - started:.0f} s)", flush=True)
        text = {"windows": arguments.windows, "tokens a window": WINDOW, "text": "GPL-3", "results": results}
        arguments.out.write_text(json.dumps(text, indent=2) + "\n")

    statistics = collect(model, calibration, list(model.linears()))
    for name, (bits, change) in FORMATS.items():
        weights = dict(model.weights)
        for linear in model.linears():
            weights[f"{linear}.weight"] = change(linear, model.weights[f"{linear}.weight"], statistics[linear])
        record(name, bits, Llama(checkpoint.config, weights))
    record("w4a4 rtn", 4, w4a4(model, checkpoint.config, turned=False))
    turned = rotated(
        model, checkpoint.config, random_rotation(model.shape.width, 0), random_rotation(model.shape.head, 1)
    )
    record("w4a4 quarot", 4, w4a4(turned, checkpoint.config, turned=True))


if __name__ == "__main__":
    main()
