"""`Learnt` as plain data and back: what `status.decision` keeps over a restart of the operator.

What cannot be read is forgotten, never an error: everything here is learnt anew within minutes.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from steelyard.decide.model import least_squares
from steelyard.decide.scale.decision import Learnt, Sums
from steelyard.decide.scale.fits import TERMS
from steelyard.decide.scale.learning import BETA_LEAST
from steelyard.decide.scale.signals import StartUp
from steelyard.decide.scale.unseen import BETA_MOST


def manifest(learnt: Learnt) -> dict[str, Any]:
    """Give plain data, numbers at six digits: about 500 bytes."""
    data: dict[str, Any] = {"beta": _short(learnt.beta)}
    for name, sums in (("prefill", learnt.prefill), ("decode", learnt.decode)):
        if sums.moments:
            data[name] = {
                "moments": [_short(value) for value in sums.moments],
                "products": [_short(value) for value in sums.products],
                "samples": _short(sums.samples),
            }
    if learnt.start is not None:
        start = learnt.start
        data["start"] = {
            "scheduling": _short(start.scheduling),
            "loading": _short(start.loading),
            "warming": _short(start.warming),
            "samples": learnt.start_samples,
            "until": learnt.start_until,
        }
    return data


def read(data: Mapping[str, Any]) -> Learnt:
    """Read what `manifest` gave; each part that is not in its form, or not possible, is as if never learnt."""
    beta = _number(data.get("beta"))
    start = data.get("start")
    phases = [_number(start.get(k)) for k in ("scheduling", "loading", "warming")] if isinstance(start, Mapping) else []
    known = [value for value in phases if value is not None and value >= 0]
    whole = isinstance(start, Mapping) and len(known) == len(StartUp.__slots__)
    until, samples = (
        (_number(start.get(k)) for k in ("until", "samples")) if isinstance(start, Mapping) else (None, None)
    )
    return Learnt(
        beta=min(BETA_MOST, max(BETA_LEAST, beta)) if beta is not None else Learnt().beta,
        prefill=_sums(data.get("prefill")),
        decode=_sums(data.get("decode")),
        start=StartUp(*known) if whole else None,
        start_samples=max(1, int(samples or 1)) if whole else 0,
        start_until=(until or 0.0) if whole else 0.0,
    )


def _sums(data: object) -> Sums:
    if not isinstance(data, Mapping):
        return Sums()
    moments, products = _numbers(data.get("moments")), _numbers(data.get("products"))
    samples = _number(data.get("samples"))
    if len(moments) != least_squares.triangle(TERMS) or len(products) != TERMS or samples is None or samples < 0:
        return Sums()
    return Sums(moments, products, samples)


def _numbers(data: object) -> tuple[float, ...]:
    if not isinstance(data, Sequence) or isinstance(data, str):
        return ()
    numbers = [_number(value) for value in data]
    return tuple(n for n in numbers if n is not None) if None not in numbers else ()


def _number(data: object) -> float | None:
    if isinstance(data, bool) or not isinstance(data, int | float) or not isfinite(data):
        return None
    return float(data)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
