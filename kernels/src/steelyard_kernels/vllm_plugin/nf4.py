"""vLLM's quantization method `bitsandbytes`, for NF4 weights alone: since 0.32 vLLM has none of its own.

The layout is `formats.bitsandbytes`, with magnitudes in fp32. Names with a second dot (`weight.absmax`) are mapped to names that a
parameter may have; what a linear's `quant_state` says is the same for all and is checked once, in config.json. On a GPU the product
is our kernel over 4-bit codes; on a CPU weights are decoded when loaded, which takes the memory of the unquantized model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from vllm.model_executor.layers.linear import (
    LinearBase,
    LinearMethodBase,
    UnquantizedLinearMethod,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.models.utils import WeightsMapper
from vllm.model_executor.parameter import ModelWeightParameter

from steelyard_kernels.formats.bitsandbytes import METHOD
from steelyard_kernels.quant.nf4 import BLOCK, Nf4, nf4_matmul
from steelyard_kernels.vllm_plugin.method import OwnMethod

STATE = ".weight.quant_state.bitsandbytes__nf4"
WANTED = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": False}


@register_quantization_config(METHOD)
class Nf4Config(OwnMethod):
    """Every linear but those that config.json leaves out."""

    method = METHOD

    def __init__(self, skipped: list[str]) -> None:
        super().__init__()
        self.skipped = skipped

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Nf4Config:
        """ValueError names a setting of bitsandbytes that is not read here."""
        for name, wanted in WANTED.items():
            if config.get(name, wanted) != wanted:
                raise ValueError(f"{name} is {config[name]!r}; only checkpoints with {name} {wanted!r} are read here")
        return cls(config.get("llm_int8_skip_modules") or [])

    @staticmethod
    def get_checkpoint_weight_mapper() -> WeightsMapper:
        """A parameter's name has no dot; the table of levels and the states are the same everywhere."""
        return WeightsMapper(
            orig_to_new_suffix={".weight.absmax": ".weight_absmax", ".weight.quant_map": None, STATE: None}
        )

    def get_quant_method(self, layer: Any, prefix: str) -> LinearMethodBase | None:
        """For linears."""
        if not isinstance(layer, LinearBase):
            return None
        return (
            UnquantizedLinearMethod() if any(part in self.skipped for part in prefix.split(".")) else Nf4LinearMethod()
        )


@register_weight_loader_v2_supported_method
class Nf4LinearMethod(LinearMethodBase):
    """Loads codes and magnitudes by rows, and multiplies with them."""

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
        """Bytes [outputs, inputs/2] and magnitudes [outputs, inputs/64], which files hold as one column."""
        if input_size_per_partition % BLOCK:
            raise ValueError(
                f"{input_size_per_partition} inputs on this device are no whole blocks of {BLOCK}; use less tensor parallelism"
            )
        outputs, loader = sum(output_partition_sizes), extra["weight_loader"]
        for name, each, kind in (("weight", 2, torch.uint8), ("weight_absmax", BLOCK, torch.float32)):
            data = torch.empty(outputs, input_size_per_partition // each, dtype=kind)
            by_rows = _by_rows(loader, input_size // each)
            layer.register_parameter(
                name, ModelWeightParameter(data=data, input_dim=1, output_dim=0, weight_loader=by_rows)
            )
        layer.wanted_type = params_dtype

    def process_weights_after_loading(self, layer: Any) -> None:
        """Keep the codes for the kernel, or decode them."""
        codes = Nf4(layer.weight.data, layer.weight_absmax.data)
        if codes.packed.is_cuda:
            layer.codes = codes
        else:
            layer.decoded = codes.dequantize().to(layer.wanted_type)
        for name in ("weight", "weight_absmax"):
            setattr(layer, name, Parameter(getattr(layer, name).data[:0], requires_grad=False))

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x · Wᵀ."""
        if not x.is_cuda:
            return F.linear(x, layer.decoded, bias)
        y = nf4_matmul(x.flatten(0, -2), layer.codes).view(*x.shape[:-1], -1)
        return y if bias is None else y + bias


def _by_rows(load: Callable[..., None], width: int) -> Callable[..., None]:
    """vLLM's loader, given rows of `width` instead of one column; the shard that a tensor is for goes with it."""

    def loader(parameter: Parameter, loaded: Tensor, *shard: Any, **more: Any) -> None:
        rows = loaded.view(-1, width)
        if hasattr(loaded, "shard_id"):
            rows.shard_id = loaded.shard_id  # type: ignore[attr-defined]  # vLLM's own
        load(parameter, rows, *shard, **more)

    return loader
