"""NF4 as bitsandbytes stores it, which transformers reads, and vLLM with our plug-in (its own reader went in 0.32).

A linear [outputs, inputs] becomes `weight` uint8 [outputs·inputs/2, 1], `weight.absmax` fp32 [blocks], `weight.quant_map` fp32 [16]
and `weight.quant_state.bitsandbytes__nf4`, a JSON text as bytes. Magnitudes are fp32: 4.5 bits a weight.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from steelyard_kernels.quant.nf4 import BLOCK, LEVELS, Nf4

METHOD = "bitsandbytes"


def tensors_of(weight: Nf4, dtype: str = "bfloat16") -> dict[str, Tensor]:
    """The layout's tensors; `dtype` is the type that a reader gives the weight back in."""
    shape = [weight.packed.shape[0], weight.packed.shape[1] * 2]
    state = {"quant_type": "nf4", "blocksize": BLOCK, "dtype": dtype, "shape": shape}
    return {
        "weight": weight.packed.reshape(-1, 1).clone(),
        "weight.absmax": weight.largest.flatten().clone(),
        "weight.quant_map": torch.tensor(LEVELS),
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8),
    }


def config(dtype: str = "bfloat16") -> dict[str, Any]:
    """`quantization_config` of config.json."""
    return {
        "quant_method": METHOD,
        "load_in_4bit": True,
        "load_in_8bit": False,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_quant_storage": "uint8",
        "bnb_4bit_use_double_quant": False,
        "bnb_4bit_compute_dtype": dtype,
        "llm_int8_skip_modules": ["lm_head"],
    }
