"""What vLLM asks of every quantization method of ours, answered once."""

from __future__ import annotations

from typing import ClassVar

import torch
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig


class OwnMethod(QuantizationConfig):
    """A method for any device whose settings are in config.json; `method` is its name there.

    vLLM makes its methods by `from_config` and asks them for a layer's work by `get_quant_method`: each has its own.
    """

    method: ClassVar[str]

    def get_name(self) -> str:
        """The method's name in config.json."""
        return self.method

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        """All: weights are decoded to the inputs' type, or inputs are rounded whatever theirs."""
        return [torch.float32, torch.float16, torch.bfloat16]

    @classmethod
    def get_min_capability(cls) -> int:
        """Any device."""
        return -1

    @staticmethod
    def get_config_filenames() -> list[str]:
        """config.json says it all."""
        return []
