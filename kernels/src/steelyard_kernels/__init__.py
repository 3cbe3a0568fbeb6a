"""Attention, KV-cache compression and quantization for LLM serving: Triton kernels, each beside a plain torch reference.

One file an op. In it `name_ref` is the reference, written to be read; `_name_kernel` is the Triton kernel; `name` chooses between
them (see `backend`). Shapes are given in brackets, sizes in bytes or values, angles in radians.
"""

from steelyard_kernels import backend as backend  # first of all: Triton decides how to run when it is imported
