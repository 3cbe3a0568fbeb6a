"""4-bit weights on a CPU that has no 4-bit product: decoded once when loaded, then multiplied as they are.

This is for trying checkpoints where there is no GPU: it takes the memory of the unquantized model.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import MPLinearKernel, MPLinearLayerConfig
from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearKernel, MxFp4LinearLayerConfig
from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Dynamic
from vllm.scalar_type import scalar_types

from steelyard_kernels.quant.fp4 import Fp4
from steelyard_kernels.quant.groups import Groups, unpack

BITS, MIDDLE = 4, 8


class CpuInt4Kernel(MPLinearKernel):
    """Integers of compressed-tensors, GPTQ and AWQ, which vLLM has brought into one of two layouts by now."""

    @classmethod
    def get_min_capability(cls) -> int:
        """Any device."""
        return -1

    @classmethod
    def can_implement(cls, c: MPLinearLayerConfig) -> tuple[bool, str | None]:
        """4 bits, with zero points or around 8, groups in order."""
        if c.weight_type not in (scalar_types.uint4, scalar_types.uint4b8):
            return False, f"weights of type {c.weight_type}; only 4-bit integers are decoded here"
        return True, None

    def process_weights_after_loading(self, layer: Any) -> None:
        """Decode into `layer.decoded` [outputs, inputs] of the activations' type."""
        words, scale, zeros = self._get_weight_params(layer)
        # From GPTQ and AWQ words come as [inputs/8, outputs], else as [outputs, inputs/8].
        words_by_row = words.data.T.contiguous() if words.input_dim == 0 else words.data
        scale_by_row = scale.data if scale.output_dim == 0 else scale.data.T
        zero = torch.full_like(scale_by_row, MIDDLE, dtype=torch.float32)
        if self.config.zero_points and zeros is not None:
            packed = zeros.data if zeros.output_dim == 0 else zeros.data.T  # [outputs/8, groups]
            zero = unpack(packed.T.contiguous(), BITS).T.float()
        codes = Groups(unpack(words_by_row, BITS), scale_by_row.float(), zero, BITS)
        layer.decoded = codes.dequantize().to(self.config.act_type)

    def apply_weights(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x · Wᵀ."""
        return F.linear(x, layer.decoded, bias)


class CpuMxFp4Kernel(MxFp4LinearKernel):
    """MXFP4 weights with inputs in 16 or 32 bits."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        """Everywhere."""
        return True, None

    @classmethod
    def can_implement(cls, config: MxFp4LinearLayerConfig) -> tuple[bool, str | None]:
        """Weight-only. vLLM asks for MXFP4 inputs whatever the checkpoint says, and takes weight-only kernels for that too."""
        if config.activation_quant_key not in (None, kMxfp4Dynamic):
            return False, f"inputs in {config.activation_quant_key}; only weights are decoded here"
        return True, None

    def process_weights_after_loading(self, layer: Any) -> None:
        """Decode into `layer.decoded` [outputs, inputs] of the model's type."""
        found = Fp4(layer.weight.data, layer.weight_scale.data, torch.ones(1))
        layer.decoded = found.dequantize().to(getattr(layer, "params_dtype", torch.get_default_dtype()))

    def apply_weights(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x · Wᵀ."""
        return F.linear(x, layer.decoded.to(x.dtype), bias)
