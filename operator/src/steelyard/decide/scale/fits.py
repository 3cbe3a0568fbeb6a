"""What a replica can do, learnt from its own figures: seconds of a prefill pass, and of a decode step.

Both are linear in their coefficients and fitted by least squares over sums that forget (half after seven minutes), so
that a changed workload or engine is followed. The prior, scaled to what was measured, pulls weakly where nothing was
seen: all prompts of one length say nothing about others. A fit is held within [½, 2] times the prior until
`ENOUGH_SAMPLES`, and within [1/10, 10] times it ever after.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, isfinite, sqrt

from steelyard.decide.model import least_squares
from steelyard.decide.model.latency import Polynomial
from steelyard.decide.scale.decision import Sums

ENOUGH_SAMPLES = 20
FORGET_SECONDS = 600.0
TERMS = 3
PRIOR_WEIGHT = 0.002  # of each anchor, in samples of the same relative error
ANCHORS = (0.05, 0.3, 1.0)  # shares of the largest batch (of tokens, of KV)
_SCALE = 1000.0  # tokens and sequences are fitted in thousands, for conditioning


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: seconds = coefficients · terms, `weight` times over."""

    terms: tuple[float, float, float]
    seconds: float
    weight: float = 1.0


def prefill_point(tokens: float, seconds: float, weight: float) -> Point:
    """Give the terms of a + b·n + c·n²."""
    n = tokens / _SCALE
    return Point((1.0, n, n * n), seconds, weight)


def decode_point(use: float, batch: float, seconds: float, bend: float) -> Point:
    """Give the terms of g0 + g1·u + g3·n; what the prior says of g2·u² (`bend` = g2) is taken off beforehand."""
    return Point((1.0, use, batch / _SCALE), seconds - bend * use * use)


def learn(sums: Sums, points: Iterable[Point], elapsed_seconds: float) -> Sums:
    """Take in the points of one tick. Nonsense (not finite, not positive) teaches nothing."""
    taken = [
        p for p in points if isfinite(p.seconds) and p.seconds > 0 and p.weight > 0 and all(map(isfinite, p.terms))
    ]
    if not taken:
        return sums
    keep = exp(-max(0.0, elapsed_seconds) / FORGET_SECONDS)
    moments = [value * keep for value in sums.moments] or [0.0] * least_squares.triangle(TERMS)
    products = [value * keep for value in sums.products] or [0.0] * TERMS
    for point in taken:
        least_squares.add(moments, products, point.terms, point.seconds, min(point.weight, ENOUGH_SAMPLES))
    return Sums(tuple(moments), tuple(products), sums.samples + sum(p.weight for p in taken))


def fitted(prior: Polynomial, prefill: Sums, decode: Sums, max_batch_tokens: float, max_sequences: float) -> Polynomial:
    """Give the engine as the prior and the measurements together say it is."""
    a, b, c = prior.prefill
    anchors = [prefill_point(share * max_batch_tokens, 1.0, 1.0).terms for share in ANCHORS]
    a, b, c = _fit((a, b * _SCALE, c * _SCALE * _SCALE), prefill, anchors)
    g0, g1, g2, g3 = prior.decode
    uses = [decode_point(use, batch * max_sequences, 1.0, 0.0).terms for use in (0.05, 0.8) for batch in (0.05, 0.8)]
    g0, g1, g3 = _fit((g0, g1, g3 * _SCALE), decode, uses)
    return Polynomial(
        prefill=(a, b / _SCALE, c / (_SCALE * _SCALE)),
        decode=(g0, g1, g2, g3 / _SCALE),
        kv_tokens=prior.kv_tokens,
        kv_bytes_per_token=prior.kv_bytes_per_token,
        transfer_bytes_per_second=prior.transfer_bytes_per_second,
    )


def _fit(
    prior: tuple[float, float, float], sums: Sums, anchors: Sequence[tuple[float, float, float]]
) -> tuple[float, float, float]:
    if not sums.moments:
        return prior
    matrix = least_squares.square(sums.moments, TERMS)
    cross = sum(p * q for p, q in zip(prior, sums.products, strict=True))
    own = sum(prior[i] * matrix[i][j] * prior[j] for i in range(TERMS) for j in range(TERMS))
    least, most = (0.5, 2.0) if sums.samples < ENOUGH_SAMPLES else (0.1, 10.0)
    scale = min(max(cross / own, least), most) if own > 0 else 1.0
    moments, products = list(sums.moments), list(sums.products)
    for terms in anchors:
        value = scale * sum(p * t for p, t in zip(prior, terms, strict=True))
        least_squares.add(moments, products, terms, value, PRIOR_WEIGHT)
    solved = least_squares.non_negative(moments, products) or prior
    if all(least <= _ratio(solved, prior, terms) <= most for terms in anchors):
        return solved[0], solved[1], solved[2]
    return scale * prior[0], scale * prior[1], scale * prior[2]


def _ratio(left: Sequence[float], right: Sequence[float], terms: Sequence[float]) -> float:
    below = sum(r * t for r, t in zip(right, terms, strict=True))
    return sum(value * t for value, t in zip(left, terms, strict=True)) / below if below > 0 else 1.0


def best_velocity(prefill: tuple[float, float, float], max_batch_tokens: float) -> float:
    """Tokens per second of the best pass, max over n of n/f(n): at n = √(a/c), or the largest pass if that is smaller."""
    a, b, c = prefill
    n = min(max_batch_tokens, sqrt(a / c)) if c > 0 else max_batch_tokens
    n = max(1.0, n)
    return n / (a + b * n + c * n * n)
