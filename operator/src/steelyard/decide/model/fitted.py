"""Latency models fitted to points: measured passes and steps, or a roofline brought into the form of a profile.

    prefill  a + b·n + c·n²      of n new tokens of one pass
    decode   g0 + g1·u + g3·n    of n sequences whose KV fills the share u of the capacity

Least squares of the relative error with no negative term, so that a fit never runs backwards. A step's curvature g2 is left
out: it is not seen apart from g1 in points that lie near each other.
"""

from collections.abc import Iterable, Sequence

from steelyard.decide.model import least_squares
from steelyard.decide.model.latency import Polynomial
from steelyard.decide.model.roofline import Roofline


def prefill(points: Iterable[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Fit a, b, c to (tokens, seconds); None without points."""
    found = _fit(3, (((1.0, n, n * n), seconds) for n, seconds in points))
    return (found[0], found[1], found[2]) if found is not None else None


def decode(points: Iterable[tuple[float, float, float]], kv_tokens: float) -> tuple[float, float, float, float] | None:
    """Fit g0, g1, g3 to (sequences, mean context, seconds); None without points."""
    found = _fit(3, (((1.0, n * context / kv_tokens, n), seconds) for n, context, seconds in points))
    return (found[0], found[1], 0.0, found[2]) if found is not None else None


def profiled(model: Roofline, kv_tokens: float, *, pass_tokens: int, sequences: int, context: float) -> Polynomial:
    """Write a roofline as a profile that is near it where a service of this pass size, batch and mean context works.

    Unlike `Roofline.polynomial`, which lies above it everywhere, it lies between its terms; where it would beat the bound of
    the hardware it is raised to it.
    """
    sizes = [float(max(1, pass_tokens >> shift)) for shift in range(7)]
    batches = [float(max(1, sequences >> shift)) for shift in range(6)]
    contexts = [context / 2, context, 1.5 * context]
    reading = prefill((n, model.prefill_seconds([n])) for n in sizes)
    grid = [(n, c) for n in batches for c in contexts]
    writing = decode(((n, c, model.decode_step_seconds(n, c)) for n, c in grid), kv_tokens)
    assert reading is not None
    assert writing is not None
    made = Polynomial(reading, writing, kv_tokens, model.kv_bytes_per_token, model.machine.link * model.accelerators)
    return _raised(made, model, sizes, grid)


def _raised(
    made: Polynomial, model: Roofline, sizes: Sequence[float], grid: Sequence[tuple[float, float]]
) -> Polynomial:
    up = max(1.0, *(model.bound_prefill([n]) / made.prefill_seconds([n]) for n in sizes))
    more = max(1.0, *(model.bound_decode(n, c) / made.decode_step_seconds(n, c) for n, c in grid))
    a, b, c2 = made.prefill
    g0, g1, g2, g3 = made.decode
    return Polynomial((a * up, b * up, c2 * up), (g0 * more, g1 * more, g2, g3 * more), made.kv_tokens,
                      made.kv_bytes_per_token, made.transfer_bytes_per_second)  # fmt: skip


def _fit(terms: int, points: Iterable[tuple[tuple[float, ...], float]]) -> tuple[float, ...] | None:
    moments, products = [0.0] * least_squares.triangle(terms), [0.0] * terms
    seen = False
    scale: tuple[float, ...] | None = None
    for values, seconds in points:
        scale = scale or tuple(abs(value) or 1.0 for value in values)  # squares of tokens and ones are far apart
        scaled = [value / unit for value, unit in zip(values, scale, strict=True)]
        least_squares.add(moments, products, scaled, seconds, 1.0)
        seen = True
    found = least_squares.non_negative(moments, products) if seen else None
    return tuple(value / unit for value, unit in zip(found, scale, strict=True)) if found and scale else None
