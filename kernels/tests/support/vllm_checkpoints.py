"""The checkpoints that the tests under vLLM load: where they lie and what they say of themselves."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

CHECKPOINTS = Path(os.environ.get("STEELYARD_CHECKPOINTS", ""))
# The type each format is computed in: GPTQ's and AWQ's methods refuse fp32.
DTYPES = {"int4-gptq": torch.bfloat16, "int4-awq": torch.bfloat16}


def folder(name: str) -> Path:
    """Where a checkpoint lies; `python -m e2e.kernels vllm` makes them."""
    found = CHECKPOINTS / name
    if not (found / "config.json").is_file():
        pytest.fail(f"{found} is not there; run these tests with `python -m e2e.kernels vllm`")
    return found


def quantization(name: str) -> dict[str, Any]:
    """What the checkpoint's config.json says of its format."""
    return dict(json.loads((folder(name) / "config.json").read_text())["quantization_config"])
