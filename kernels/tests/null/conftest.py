"""SmolLM2, loaded once for the tests that need a real model."""

import os
from pathlib import Path

import pytest
import torch

from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama


@pytest.fixture(scope="session")
def checkpoint() -> gguf.Checkpoint:
    path = os.environ.get("STEELYARD_GGUF")
    if not path:
        pytest.skip("set STEELYARD_GGUF to SmolLM2's GGUF file, or run the tests with `python -m e2e.kernels test`")
    return gguf.read(Path(path))


@pytest.fixture(scope="session")
def model(checkpoint: gguf.Checkpoint) -> Llama:
    """In fp32 and for reading only: a test that changes weights makes `Llama(checkpoint.config, model.weights)` its own."""
    with torch.no_grad():
        return Llama(checkpoint.config, checkpoint.tensors)
