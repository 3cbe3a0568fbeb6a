"""Chooses where an op runs: its Triton kernel for tensors on a GPU, its reference for the others.

`KERNELS_BACKEND=interpret`, set before this package is imported, runs the kernels in Triton's interpreter for tensors on the CPU
too. That is for tests: a program costs some 0.3 ms an operation, whatever its size.
"""

from __future__ import annotations

import os
from typing import Final

import torch

INTERPRET: Final = os.environ.get("KERNELS_BACKEND", "") == "interpret"

if INTERPRET:
    os.environ["TRITON_INTERPRET"] = "1"
    from steelyard_kernels import interpreter

    interpreter.correct()


def uses_triton(tensor: torch.Tensor) -> bool:
    """Whether an op on this tensor runs its Triton kernel."""
    return tensor.is_cuda or INTERPRET
