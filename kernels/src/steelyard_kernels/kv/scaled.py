"""8-bit keys and values, one scale a token and head: int8, or fp8 (e4m3).

    int8: scale = max|x| / 127, code = round(x / scale);   fp8: scale = max|x| / 448, code = x / scale rounded to e4m3
over the width of a head. Scales are fp32, as vLLM's `int8_per_token_head` and `fp8_per_token_head` keep them. An e4m3 has no
infinity and torch's conversion gives NaN above 464, where NVIDIA's saturates: the value is clamped first. `fixed_scale` gives the
calibrated scale of a whole tensor instead (vLLM's `fp8` with k_scale and v_scale), and then large values saturate.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton
from steelyard_kernels.kv.cache import Cache
from steelyard_kernels.rounding import round_even

Kind = Literal["int8", "fp8"]
LARGEST: dict[Kind, float] = {"int8": 127.0, "fp8": 448.0}
CODES: dict[Kind, torch.dtype] = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
SMALLEST_SCALE = 1e-12


class Scaled(NamedTuple):
    """Codes [..., d] int8 or e4m3, scale [..., 1] float32."""

    codes: Tensor
    scale: Tensor

    def dequantize(self) -> Tensor:
        """Values [..., d] float32."""
        return self.codes.float() * self.scale


def quantize_tokens_ref(values: Tensor, kind: Kind, fixed_scale: float | None = None) -> Scaled:
    """Codes of values [..., d] with a scale each row, or with the given one."""
    values, largest = values.float(), LARGEST[kind]
    scale = values.abs().amax(-1, keepdim=True) / largest
    scale = torch.full_like(scale, fixed_scale) if fixed_scale is not None else scale.clamp(min=SMALLEST_SCALE)
    codes = (values / scale).clamp(-largest, largest)
    return Scaled((codes.round() if kind == "int8" else codes).to(CODES[kind]), scale)


@triton.jit
def _quantize_tokens_kernel(
    values, codes, scale, rows, width, fixed, largest,
    FIXED: tl.constexpr, INTEGER: tl.constexpr, SMALLEST: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One program: ROWS rows. `fixed` is the scale when FIXED."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)
    inside = (row < rows)[:, None] & (lane < width)[None, :]
    at = row.to(tl.int64)[:, None] * width + lane[None, :]
    value = tl.load(values + at, mask=inside, other=0.0).to(tl.float32)
    if FIXED:
        step = tl.zeros((ROWS,), dtype=tl.float32) + fixed
    else:
        step = tl.maximum(
            tl.div_rn(tl.max(tl.abs(value), axis=1), tl.zeros((ROWS,), dtype=tl.float32) + largest), SMALLEST
        )
    code = tl.div_rn(value, tl.broadcast_to(step[:, None], value.shape))
    code = tl.minimum(tl.maximum(code, -largest), largest)
    if INTEGER:
        code = round_even(code)
    tl.store(codes + at, code.to(codes.dtype.element_ty), mask=inside)
    tl.store(scale + row, step, mask=row < rows)


def quantize_tokens(values: Tensor, kind: Kind, fixed_scale: float | None = None) -> Scaled:
    """`quantize_tokens_ref`, or its kernel on a GPU."""
    if kind not in LARGEST:
        raise ValueError(f"kind is {kind!r}; it must be 'int8' or 'fp8'")
    if not uses_triton(values):
        return quantize_tokens_ref(values, kind, fixed_scale)
    values = values.contiguous()
    width = values.shape[-1]
    rows = values.numel() // width
    codes = torch.empty(values.shape, dtype=CODES[kind], device=values.device)
    scale = torch.empty(*values.shape[:-1], 1, dtype=torch.float32, device=values.device)
    _quantize_tokens_kernel[(triton.cdiv(rows, 32),)](
        values, codes, scale, rows, width, fixed_scale or 0.0, LARGEST[kind],
        FIXED=fixed_scale is not None, INTEGER=kind == "int8", SMALLEST=SMALLEST_SCALE,
        LANES=triton.next_power_of_2(width), ROWS=32,
    )  # fmt: skip
    return Scaled(codes, scale)


class ScaledCache(Cache):
    """Every token in 8 bits as soon as its step is over."""

    def __init__(self, kind: Kind, fixed_scale: float | None = None) -> None:
        super().__init__()
        if kind not in LARGEST:
            raise ValueError(f"kind is {kind!r}; it must be 'int8' or 'fp8'")
        self.kind, self.fixed_scale = kind, fixed_scale
        self.stored: tuple[Scaled, Scaled] | None = None
        self._new: tuple[Tensor, Tensor] = (torch.empty(0), torch.empty(0))

    def _extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self._new = (keys, values)
        if self.stored is None:
            return keys, values
        old = [part.dequantize().to(keys.dtype) for part in self.stored]
        return torch.cat([old[0], keys], 1), torch.cat([old[1], values], 1)

    def settle(self, probabilities: Tensor) -> None:
        """Quantize the step's tokens."""
        new = [quantize_tokens(part, self.kind, self.fixed_scale) for part in self._new]
        if self.stored is not None:
            new = [
                Scaled(*(torch.cat(pair, 1) for pair in zip(*both, strict=True)))
                for both in zip(self.stored, new, strict=True)
            ]
        self.stored = (new[0], new[1])

    def bytes(self) -> int:
        """Codes and scales; a fixed scale is not stored a token."""
        if self.stored is None:
            return 0
        scales = 0 if self.fixed_scale is not None else sum(part.scale.nbytes for part in self.stored)
        return scales + sum(part.codes.nbytes for part in self.stored)
