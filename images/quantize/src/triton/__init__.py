"""In place of Triton in an image without a GPU: kernels can be defined there and none can be run.

`steelyard_kernels` has each kernel beside its torch reference in one file and runs the reference on processors. The real package
takes a gigabyte, nearly all of it compilers for GPUs.
"""

from typing import TypeVar

from triton import language

__all__ = ["cdiv", "jit", "language", "next_power_of_2"]


Function = TypeVar("Function")


def jit(function: Function) -> Function:
    """Give the function as it is; whoever launches it, by `kernel[grid](…)`, gets a TypeError."""
    return function


def cdiv(x: int, y: int) -> int:
    """The quotient, rounded up."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()
