"""Hadamard matrices and their fast application: H·Hᵀ = n·I with entries ±1, so H/√n is a rotation (or reflection).

A vector with one large value becomes one with all values equal in size: no outliers are left for a quantizer. Orders are 2^k·m, as
the Kronecker product of Sylvester's matrix of 2^k and, for m > 2, one of Paley's: of order q + 1 for a prime q ≡ 3 (mod 4), or
2(q + 1) for a prime q ≡ 1 (mod 4), from the squares modulo q. That gives m = 12, 20, 28, 36, 44, 60, …; SmolLM2's widths are
576 = 16·36 and 1536 = 128·12. Applying H as (A ⊗ B)·x = A·X·Bᵀ, X being x as a matrix, costs n·(a + b) products instead of n².
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from steelyard_kernels.backend import uses_triton


def hadamard(order: int) -> Tensor:
    """The ±1 matrix [order, order], float32; ValueError when no construction here has this order."""
    left, right = factors(order)
    return torch.kron(left, right)


def factors(order: int) -> tuple[Tensor, Tensor]:
    """Two matrices A and B with A ⊗ B the Hadamard matrix of this order: Sylvester's, and Paley's or again Sylvester's."""
    power, rest = order & -order, order // (order & -order)
    if rest == 1:
        half = power.bit_length() // 2
        return _sylvester(power >> half), _sylvester(1 << half)
    core = 4 * rest
    while core <= order:
        found = _paley(core)
        if found is not None:
            return _sylvester(order // core), found
        core *= 2
    raise ValueError(
        f"no Hadamard matrix of order {order} is built here; orders are 2^k times 1 or a Paley order (12, 20, 28, 36, …)"
    )


@cache
def _sylvester(order: int) -> Tensor:
    matrix = torch.ones(1, 1)
    while len(matrix) < order:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


@cache
def _paley(order: int) -> Tensor | None:
    q = order - 1
    if q % 4 == 3 and _prime(q):
        jacobsthal = _residues(q)
        inner = torch.cat([torch.ones(1, q), jacobsthal])
        return torch.cat([torch.cat([torch.zeros(1, 1), -torch.ones(q, 1)]), inner], 1) + torch.eye(order)
    q = order // 2 - 1
    if order % 4 == 0 and q % 4 == 1 and _prime(q):
        edge = torch.ones(1, q)
        conference = torch.cat([torch.cat([torch.zeros(1, 1), edge.T]), torch.cat([edge, _residues(q)])], 1)
        ones = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
        return torch.kron(conference, ones) + torch.kron(torch.eye(q + 1), torch.tensor([[1.0, -1.0], [-1.0, -1.0]]))
    return None


def _residues(q: int) -> Tensor:
    """Jacobsthal's matrix [q, q]: at (i, j) whether i − j is a square modulo q: 1, −1, or 0 on the diagonal."""
    squares = {i * i % q for i in range(1, q)}
    row = torch.tensor([0.0] + [1.0 if i in squares else -1.0 for i in range(1, q)])
    index = torch.arange(q)
    return row[(index[:, None] - index[None, :]) % q]


def _prime(n: int) -> bool:
    return n > 1 and all(n % i for i in range(2, int(n**0.5) + 1))


def random_rotation(order: int, seed: int) -> Tensor:
    """A Hadamard rotation with random column signs, [order, order] float64 and orthogonal."""
    signs = torch.randint(0, 2, (order,), generator=torch.Generator().manual_seed(seed)).double() * 2 - 1
    return hadamard(order).double() * signs / order**0.5


def turn_ref(x: Tensor) -> Tensor:
    """x [..., n] times the Hadamard matrix over √n, from the right: x·Hᵀ/√n, by the two factors."""
    left, right = (
        factor.to(x.device, torch.float64 if x.dtype == torch.float64 else torch.float32)
        for factor in factors(x.shape[-1])
    )
    matrix = x.to(left.dtype).unflatten(-1, (len(left), len(right)))
    return ((left @ matrix @ right.T).flatten(-2) / x.shape[-1] ** 0.5).to(x.dtype)


@triton.jit
def _turn_kernel(
    x, left, right, out, root, A: tl.constexpr, B: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """One program: one vector, as A × B padded to ROWS × COLUMNS."""
    at = tl.program_id(0).to(tl.int64) * (A * B)
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (row < A)[:, None] & (column < B)[None, :]
    place = row[:, None] * B + column[None, :]
    matrix = tl.load(x + at + place, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(left + row[:, None] * A + row[None, :], mask=(row < A)[:, None] & (row < A)[None, :], other=0.0)
    wanted = (column < B)[:, None] & (column < B)[None, :]
    b = tl.load(right + column[None, :] * B + column[:, None], mask=wanted, other=0.0)
    turned = tl.dot(tl.dot(a, matrix, input_precision="ieee"), b, input_precision="ieee")
    tl.store(out + at + place, (turned / root).to(out.dtype.element_ty), mask=inside)


def turn(x: Tensor) -> Tensor:
    """`turn_ref`, or its kernel on a GPU."""
    if not uses_triton(x) or x.dtype == torch.float64:
        return turn_ref(x)
    order = x.shape[-1]
    left, right = (factor.to(x.device) for factor in factors(order))
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _turn_kernel[(x.numel() // order,)](
        x, left, right, out, order**0.5, A=len(left), B=len(right),
        ROWS=max(16, triton.next_power_of_2(len(left))), COLUMNS=max(16, triton.next_power_of_2(len(right))),
    )  # fmt: skip
    return out
