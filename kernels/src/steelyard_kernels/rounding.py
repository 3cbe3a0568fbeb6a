"""Rounding inside kernels. Triton's own is in a device library that its interpreter lacks."""

import triton
import triton.language as tl


@triton.jit
def round_even(x):
    """The nearest integer, ties to the even one, for |x| < 2^22: adding 1.5·2^23 leaves fp32 no bit for a fraction."""
    return (x.to(tl.float32) + 12582912.0) - 12582912.0
