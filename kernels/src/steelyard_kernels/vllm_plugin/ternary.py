"""vLLM's quantization method `steelyard_ternary`: weights of −1, 0 and 1, inputs rounded to 8 bits a token.

The layout is `formats.ternary`. Linears that vLLM joins (q, k, v; gate, up) keep a scale each. On a GPU the product is our kernel
over 2-bit weights, exact in int32; on a CPU a product of floats, which holds the same sums exactly below 2^17 inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from vllm.model_executor.layers.linear import (
    LinearBase,
    LinearMethodBase,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.parameter import ModelWeightParameter, PerTensorScaleParameter

from steelyard_kernels.formats.ternary import METHOD, PER_WORD, values_of
from steelyard_kernels.quant.ternary import pack_quarters, quantize_activations, ternary_matmul
from steelyard_kernels.vllm_plugin.method import OwnMethod


@register_quantization_config(METHOD)
class TernaryConfig(OwnMethod):
    """Every linear of the layers is ternary; the head is not."""

    method = METHOD

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TernaryConfig:
        """There is nothing to choose."""
        return cls()

    def get_quant_method(self, layer: Any, prefix: str) -> TernaryLinearMethod | None:
        """For linears."""
        return TernaryLinearMethod() if isinstance(layer, LinearBase) else None


@register_weight_loader_v2_supported_method
class TernaryLinearMethod(LinearMethodBase):
    """Loads packed weights and multiplies with them."""

    def create_weights(
        self,
        layer: Any,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra: Any,
    ) -> None:
        """Words [outputs, inputs/16] and a scale for each of the joined linears."""
        loader, outputs = extra.get("weight_loader"), sum(output_partition_sizes)
        layer.logical_widths = output_partition_sizes
        words = torch.empty(outputs, input_size_per_partition // PER_WORD, dtype=torch.int32)
        packed = ModelWeightParameter(data=words, input_dim=1, output_dim=0, weight_loader=loader)
        scales = torch.empty(len(output_partition_sizes), dtype=torch.float32)
        layer.register_parameter("weight_packed", packed)
        layer.register_parameter("weight_scale", PerTensorScaleParameter(data=scales, weight_loader=loader))

    def process_weights_after_loading(self, layer: Any) -> None:
        """Bring the weights into the kernel's packing, or into floats, and give each output its scale."""
        values = values_of(layer.weight_packed.data)
        layer.ternary = pack_quarters(values) if values.is_cuda else values.float()
        widths = torch.tensor(layer.logical_widths, device=values.device)
        layer.output_scale = layer.weight_scale.data.repeat_interleave(widths)
        layer.weight_packed = Parameter(layer.weight_packed.data[:0], requires_grad=False)

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """round(x) · tᵀ · s."""
        codes, scale = quantize_activations(x)
        flat = codes.flatten(0, -2)
        product = ternary_matmul(flat, layer.ternary).float() if x.is_cuda else flat.float() @ layer.ternary.T
        y = product.view(*x.shape[:-1], -1) * scale * layer.output_scale
        return (y if bias is None else y + bias).to(x.dtype)
