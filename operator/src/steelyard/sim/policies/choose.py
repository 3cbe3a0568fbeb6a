"""Policies by name, with their settings: `hpa-queue,target=4,window=120`, `static=5:1`, `ours`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from steelyard.decide.scale import signals as law
from steelyard.sim.engine import Engine
from steelyard.sim.policies.law import Law
from steelyard.sim.policies.policy import Bounds, Policy, Static
from steelyard.sim.policies.rivals import DynamoLoad, FixedRatio, HpaQueue, HpaUtilisation, Rival, TokenVelocity
from steelyard.sim.scenario import AGGREGATED, DECODE, PREFILL

RIVALS: Mapping[str, type[Rival]] = {
    "hpa-queue": HpaQueue,
    "hpa-utilisation": HpaUtilisation,
    "fixed-ratio": FixedRatio,
    "token-velocity": TokenVelocity,
    "dynamo-load": DynamoLoad,
}
NAMES = ("ours", "static", *RIVALS)
_MAY_BE_ZERO = {"window", "down_tokens", "down_kv"}  # no stabilisation; never scaled down
_NOT_SETTINGS = {"engine", "bounds"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy to run: `make` gives a fresh one; `initial` replaces the scenario's replicas where it says so."""

    name: str
    make: Callable[[], Policy]
    initial: dict[str, int] | None = None


def choose(text: str, engine: Engine, asked: law.Service) -> Chosen:
    """Read one policy. Raises ValueError that names what is wrong and what would be right."""
    head, *settings = text.split(",")
    name, _, ratio = head.partition("=")
    if name == "static":
        if settings:
            raise ValueError(f"--policy {text!r}: static takes a ratio only, such as static=5:1")
        return Chosen(text, Static, replicas(ratio, f"--policy {text!r}") if ratio else None)
    if name not in NAMES or ratio:
        raise ValueError(f"--policy {head!r} is unknown; there are {', '.join(NAMES)}")
    if name == "ours":
        if settings:
            raise ValueError(f"--policy {text!r}: ours has one default for all, and takes no settings")
        return Chosen(text, lambda: Law(asked))
    kind = RIVALS[name]
    limits = asked.limits
    bounds = Bounds(
        least={role: bound.min for role, bound in limits.roles.items()},
        most={role: bound.max for role, bound in limits.roles.items()},
        budget=None if limits.accelerators is None else int(limits.accelerators),
    )
    values = _settings(text, kind, settings)
    return Chosen(text, lambda: kind(engine, bounds, **values))


def replicas(text: str, flag: str = "--replicas") -> dict[str, int]:
    """Read `6:1` (prefill:decode) or `8` (aggregated). Raises ValueError that begins with the flag."""
    parts = text.split(":")
    try:
        counts = [int(part) for part in parts]
    except ValueError:
        counts = []
    if not 1 <= len(counts) <= 2 or min(counts) < 1:
        raise ValueError(
            f"{flag} has replicas {text!r}: write prefill:decode, such as 6:1, or one number for aggregated replicas"
        )
    return {AGGREGATED: counts[0]} if len(counts) == 1 else {PREFILL: counts[0], DECODE: counts[1]}


def _settings(text: str, kind: type[Rival], settings: list[str]) -> dict[str, Any]:
    known = [f.name for f in fields(kind) if f.init and f.name not in _NOT_SETTINGS and not f.name.startswith("_")]
    values: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        key = key.replace("-", "_")
        if key not in known:
            raise ValueError(f"--policy {text!r}: setting {key!r} is unknown; there are {', '.join(known)}")
        try:
            values[key] = float(value)
        except ValueError as failure:
            raise ValueError(f"--policy {text!r}: {key} is {value!r}; expected a number") from failure
        if not isfinite(values[key]) or values[key] < 0 or (values[key] == 0 and key not in _MAY_BE_ZERO):
            raise ValueError(f"--policy {text!r}: {key} is {value}; it must be a number above 0")
    return values
