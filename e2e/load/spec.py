"""What a run is asked to do: where to, when, and what clients do besides waiting."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.load.arrivals import Arrival, Schedule
from e2e.load.errors import LoadError

_PORTS = {"http": 80, "https": 443}


class Endpoint(StrEnum):
    """The part of the OpenAI API that is called."""

    COMPLETIONS = "completions"
    CHAT = "chat"


class Connections(StrEnum):
    """Whose connection a request takes."""

    FRESH = "fresh"  # its own: as independent clients do, spread by a Service over all gateways
    REUSED = "reused"  # an idle one that was used within the last second, where there is one


@dataclass(frozen=True)
class Target:
    """An OpenAI endpoint. `url` ends before `/v1`; `extra` are further fields of each request's JSON.

    `ca` is a PEM file of the authorities that the server's certificate may come from; None: those of this machine.
    """

    url: str
    model: str
    endpoint: Endpoint = Endpoint.COMPLETIONS
    extra: Mapping[str, Any] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)
    ca: Path | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError as error:
            raise LoadError(f"url is {self.url!r}: {error}.") from None
        if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
            raise LoadError(f"url is {self.url!r}; it must look like http://HOST:PORT or https://HOST:PORT.")
        if self.ca is not None and not self.secure:
            raise LoadError(f"ca is {self.ca}, but {self.url} is not https: leave it out or change the URL.")

    @property
    def host(self) -> str:
        """The host's name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port; where the URL names none, the usual one of its scheme."""
        return urlsplit(self.url).port or _PORTS[urlsplit(self.url).scheme]

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken."""
        return urlsplit(self.url).scheme == "https"

    @property
    def path(self) -> str:
        """The request's path."""
        base = urlsplit(self.url).path.rstrip("/").removesuffix("/v1")
        return f"{base}/v1/{'chat/completions' if self.endpoint is Endpoint.CHAT else 'completions'}"


@dataclass(frozen=True)
class Bounds:
    """How long a client waits, in seconds."""

    request: float = 120.0  # from sending to the end of the answer; then it is `timed_out`
    silence: float = 30.0  # without one byte from the server; then it is `hung`

    def __post_init__(self) -> None:
        for name in ("request", "silence"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise LoadError(f"the bound {name} is {getattr(self, name)}; it must be a number of seconds above 0.")


@dataclass(frozen=True)
class Habits:
    """What some clients do, each drawn from the seed."""

    cancel_fraction: float = 0.0  # leave: half of them 0.1 s after sending, half after a random token
    slow_fraction: float = 0.0  # read slowly
    slow_bytes_per_second: float = 2048.0

    def __post_init__(self) -> None:
        for name in ("cancel_fraction", "slow_fraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise LoadError(f"{name} is {getattr(self, name)}; it must be from 0 to 1.")
        if self.slow_bytes_per_second <= 0:
            raise LoadError("slow_bytes_per_second must be above 0.")


@dataclass(frozen=True)
class Objectives:
    """What a request must meet, in seconds; None: not judged."""

    ttft: float | None = None
    tpot: float | None = None


@dataclass(frozen=True)
class Spec:
    """A run."""

    target: Target
    schedule: Schedule
    bounds: Bounds = field(default_factory=Bounds)
    habits: Habits = field(default_factory=Habits)
    objectives: Objectives = field(default_factory=Objectives)
    connections: Connections = Connections.FRESH
    processes: int = 1  # the schedule is dealt out among them in turn
    seed: int = 0
    title: str = ""

    def __post_init__(self) -> None:
        if not self.schedule:
            raise LoadError("The schedule is empty: raise the rate or the duration, or begin the trace earlier.")
        if not 1 <= self.processes <= 64:
            raise LoadError(f"processes is {self.processes}; it must be from 1 to 64.")


@dataclass(frozen=True, slots=True)
class Planned:
    """One request of a run, with what its client will do."""

    index: int
    arrival: Arrival
    leave_after: int | None = None  # tokens; 0: before the first, 0.1 s after sending
    slow: bool = False


def plan(spec: Spec) -> tuple[Planned, ...]:
    """Every request of the run. The draws of one request do not depend on the others or on the fractions."""
    planned = []
    for index, arrival in enumerate(spec.schedule):
        rng = random.Random(f"habits {spec.seed} {index}")
        cancels, waiting, place, slow = (rng.random() for _ in range(4))
        leave = None
        if cancels < spec.habits.cancel_fraction:
            leave = 0 if waiting < 0.5 else 1 + math.floor(place * arrival.output_tokens)
        planned.append(Planned(index, arrival, leave, slow < spec.habits.slow_fraction))
    return tuple(planned)
