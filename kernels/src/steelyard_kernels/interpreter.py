"""Makes Triton's CPU interpreter exact for bf16 and fp8.

Triton 3.9 keeps a bf16 value as the integer of its bits and computes with that integer: sums, comparisons and products of bf16
are wrong without a message (triton issues 4972, 10945, 11584). Its conversions to bf16 truncate, those to fp8 round half up on
one bit and lose the carry into the exponent, and an fp8 NaN reads as a number. `correct` replaces the conversions by torch's,
which round to nearest even, and raises bf16 operands to fp32 around every operation, which is what the hardware does. A conversion
to fp8 saturates, as NVIDIA's does. Not corrected: atomics on bf16, which kernels here do not use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

_TORCH = {
    tl.bfloat16: torch.bfloat16,
    tl.float16: torch.float16,
    tl.float32: torch.float32,
    tl.float64: torch.float64,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}
_LARGEST = {tl.float8e4nv: 448.0, tl.float8e5: 57344.0}
_NARROW = {tl.bfloat16, tl.float16, *_LARGEST}
_SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}

# Operations of the interpreter's builder and how many of their leading arguments are values.
_OPERATIONS = {
    "binary_op": 2,
    "unary_op": 1,
    "ternary_op": 3,
    "create_fma": 3,
    "create_rsqrt": 1,
    "create_erf": 1,
    "create_idiv": 2,
}

_stock_convert = interpreter._convert_float
_Builder = interpreter.InterpreterBuilder
_Handle = interpreter.TensorHandle


def correct() -> None:
    """Replace the wrong parts of the interpreter; a second call changes nothing."""
    if interpreter._convert_float is _convert:
        return
    interpreter._convert_float = _convert
    for name, values in _OPERATIONS.items():
        setattr(_Builder, name, _in_fp32(getattr(_Builder, name), values))
    _Builder.cast_impl = _cast_with(_Builder.cast_impl)
    _Builder.create_dot = _dot


def _convert(values: Any, source: Any, target: Any, rounding: Any) -> Any:
    """Bits of type `source` → bits of type `target`, rounding to nearest even and saturating at an fp8's largest value."""
    if source not in _TORCH or target not in _TORCH:
        return _stock_convert(values, source, target, rounding)
    bits = np.ascontiguousarray(values).view(_SIGNED[source.primitive_bitwidth])
    numbers = torch.from_numpy(bits).view(_TORCH[source])
    if target in _LARGEST and source not in _LARGEST:
        numbers = numbers.float().clamp(-_LARGEST[target], _LARGEST[target])  # clamp keeps NaN
    width = target.primitive_bitwidth
    integers = numbers.to(_TORCH[target]).view(
        {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[width]
    )
    return integers.numpy().view(_UNSIGNED[width]).reshape(np.shape(values))


def _raised(handle: Any) -> Any:
    if not isinstance(handle, _Handle) or handle.dtype.scalar != tl.bfloat16:
        return handle
    return _Handle(_convert(handle.data, tl.bfloat16, tl.float32, None).view(np.float32), tl.float32)


def _lowered(handle: Any) -> Any:
    return _Handle(_convert(handle.data.astype(np.float32), tl.float32, tl.bfloat16, None), tl.bfloat16)


def _is_bfloat16(handle: Any) -> bool:
    return isinstance(handle, _Handle) and handle.dtype.scalar == tl.bfloat16


def _in_fp32(stock: Any, values: int) -> Any:
    def operation(self: Any, *arguments: Any) -> Any:
        if not any(_is_bfloat16(argument) for argument in arguments[:values]):
            return stock(self, *arguments)
        result = stock(self, *map(_raised, arguments))
        return result if result.data.dtype == np.bool_ else _lowered(result)  # comparisons answer with booleans

    return operation


def _cast_with(stock: Any) -> Any:
    def cast(self: Any, source: Any, target: Any) -> Any:
        before, after = source.dtype.scalar, target.scalar
        if before == tl.bfloat16 and after != tl.bfloat16:
            raised = _raised(source)
            return raised if after == tl.float32 else stock(self, raised, target)
        if after == tl.bfloat16 and before != tl.bfloat16:
            return _lowered(source)
        return stock(self, source, target)

    return cast


def _dot(self: Any, left: Any, right: Any, accumulator: Any, precision: Any, imprecise: Any) -> Any:
    def numbers(handle: Any) -> Any:
        kind = handle.dtype.scalar
        return _convert(handle.data, kind, tl.float32, None).view(np.float32) if kind in _NARROW else handle.data

    product = np.matmul(numbers(left), numbers(right), dtype=accumulator.data.dtype)
    return _Handle(product + accumulator.data, accumulator.dtype.scalar)
