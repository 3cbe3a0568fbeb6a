"""Least squares with few non-negative terms, from running sums, so that a fit costs nothing to keep and little to solve.

Points count by their relative error (weight 1/y²): a pass of 30 ms matters as much as one of 3 s. Standard library only.
"""

from collections.abc import Sequence
from itertools import combinations


def add(moments: list[float], products: list[float], terms: Sequence[float], value: float, weight: float) -> None:
    """Add one point, `value` = Σ coefficient · term, to the sums; `moments` is the upper triangle, row by row."""
    scaled = weight / (value * value)
    at = 0
    for i, left in enumerate(terms):
        products[i] += scaled * left * value
        for right in terms[i:]:
            moments[at] += scaled * left * right
            at += 1


def triangle(size: int) -> int:
    """Count the entries of `moments` for that many terms."""
    return size * (size + 1) // 2


def square(moments: Sequence[float], size: int) -> list[list[float]]:
    """Unfold the upper triangle into the symmetric matrix."""
    matrix = [[0.0] * size for _ in range(size)]
    at = 0
    for i in range(size):
        for j in range(i, size):
            matrix[i][j] = matrix[j][i] = moments[at]
            at += 1
    return matrix


def non_negative(moments: Sequence[float], products: Sequence[float]) -> tuple[float, ...] | None:
    """Solve for coefficients that are all ≥ 0: of every set of terms whose solution is non-negative, the one with the
    least error. With three terms that is seven small systems, and exact. None where nothing was added."""
    size = len(products)
    matrix = square(moments, size)
    best: tuple[float, tuple[float, ...]] | None = None
    for count in range(size, 0, -1):
        for chosen in combinations(range(size), count):
            solved = solve([[matrix[i][j] for j in chosen] for i in chosen], [products[i] for i in chosen])
            if solved is None or min(solved) < 0:
                continue
            error = -sum(value * products[term] for term, value in zip(chosen, solved, strict=True))
            if best is None or error < best[0] - 1e-12:
                full = [0.0] * size
                for term, value in zip(chosen, solved, strict=True):
                    full[term] = value
                best = (error, tuple(full))
        if best is not None and count == size:
            break  # the unconstrained optimum is non-negative: no smaller set can be better
    return best[1] if best else None


def solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gaussian elimination with pivoting; None where the matrix is (nearly) singular for its own scale."""
    size = len(right)
    scale = max((abs(matrix[i][i]) for i in range(size)), default=0.0)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        if abs(rows[pivot][column]) <= 1e-12 * scale:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for below in range(column + 1, size):
            factor = rows[below][column] / rows[column][column]
            for k in range(column, size + 1):
                rows[below][k] -= factor * rows[column][k]
    solved = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][k] * solved[k] for k in range(i + 1, size))
        solved[i] = (rows[i][size] - known) / rows[i][i]
    return solved
