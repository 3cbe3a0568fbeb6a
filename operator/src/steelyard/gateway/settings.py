"""The gateway's settings: one JSON file, written by the operator, re-read when it changes.

Unknown fields are refused, every refusal names the field, the value where there is one, and what would be right. The
process keeps its last good settings when new ones are refused.
"""

from typing import Literal

import msgspec

from steelyard.decide.queue.dispatch import Order
from steelyard.decide.queue.estimate import PrefillPrior
from steelyard.decide.queue.judge import Objectives


class SettingsError(ValueError):
    """The settings cannot be used; the message says which field and why."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the settings: camelCase names, nothing unknown."""


class ObjectiveSettings(_Part, frozen=True):
    """Objectives in seconds; null where there is none."""

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None


class Limits(_Part, frozen=True):
    """What one gateway process takes on at most."""

    concurrent: int = 1000
    body_bytes: int = 4 * 1024 * 1024
    shed_when_late: bool = False


class Prior(_Part, frozen=True):
    """Seconds of one prefill of n tokens before anything was measured: a + b·n + c·n²."""

    a: float = 0.02
    b: float = 0.0002
    c: float = 0.0


class Settings(_Part, frozen=True):
    """All settings, see docs/design/interfaces.md."""

    service: str
    namespace: str
    served_name: str
    adapters: tuple[str, ...] = ()  # names of LoRA adapters, which clients may ask for in place of the model's
    topology: Literal["Disaggregated", "Aggregated"] = "Disaggregated"
    objectives: ObjectiveSettings = ObjectiveSettings()
    order: Order = Order.SHORTEST_FIRST
    affinity: Literal["prefix", "none"] = "prefix"
    limits: Limits = Limits()
    request_timeout_seconds: float = 600.0
    stall_timeout_seconds: float = 60.0
    gateways: int = 1
    prefill_prior: Prior = Prior()
    handoff_seconds: float = 0.05
    decode_slots: int = 8
    context_length: int = 2048
    api_keys_file: str | None = None

    def limited_to(self, slots: int) -> "Settings":
        """The same with no more than so many sequences on one decode replica, which the autoscaler has found right.

        One pool that does both has no decode replicas: a number from before the topology changed says nothing of it.
        """
        if self.aggregated:
            return self
        return msgspec.structs.replace(self, decode_slots=min(self.decode_slots, slots))

    @property
    def aggregated(self) -> bool:
        """Whether one pool does both prefill and decode."""
        return self.topology == "Aggregated"

    @property
    def judged_by(self) -> Objectives:
        """The objectives in the form that `decide` takes."""
        return Objectives(self.objectives.ttft_seconds, self.objectives.tpot_seconds)

    @property
    def prior(self) -> PrefillPrior:
        """The prior of the prefill time in the form that `decide` takes."""
        return PrefillPrior(self.prefill_prior.a, self.prefill_prior.b, self.prefill_prior.c)

    @property
    def slots_here(self) -> int:
        """Sequences that this one of `gateways` may hold on a replica; rounded up, so that it is at least one."""
        return -(-self.decode_slots // self.gateways)

    @property
    def ttft_budget(self) -> float | None:
        """Seconds from arrival to the end of prefill that still meet the objective; None without objective."""
        objective = self.objectives.ttft_seconds
        return None if objective is None else max(0.0, objective - self.handoff_seconds)


_decode = msgspec.json.Decoder(Settings).decode


def parse_settings(text: bytes) -> Settings:
    """Read settings from JSON. Raises SettingsError naming the field, its value and the remedy."""
    try:
        settings = _decode(text)
    except msgspec.MsgspecError as error:
        raise SettingsError(f"gateway settings: {error}; see docs/design/interfaces.md for the fields") from None
    for name, value, least in _bounds(settings):
        if value is not None and not value >= least:
            raise SettingsError(f"gateway settings: {name} is {value}, and must be at least {least}")
    if not settings.served_name:
        raise SettingsError("gateway settings: servedName is empty, and must be the name that clients put in `model`")
    return settings


def _bounds(s: Settings) -> list[tuple[str, float | None, float]]:
    smallest = 1e-6
    return [
        ("objectives.ttftSeconds", s.objectives.ttft_seconds, smallest),
        ("objectives.tpotSeconds", s.objectives.tpot_seconds, smallest),
        ("limits.concurrent", s.limits.concurrent, 1),
        ("limits.bodyBytes", s.limits.body_bytes, 1),
        ("requestTimeoutSeconds", s.request_timeout_seconds, smallest),
        ("stallTimeoutSeconds", s.stall_timeout_seconds, smallest),
        ("gateways", s.gateways, 1),
        ("prefillPrior.a", s.prefill_prior.a, 0.0),
        ("prefillPrior.b", s.prefill_prior.b, 0.0),
        ("prefillPrior.c", s.prefill_prior.c, 0.0),
        ("handoffSeconds", s.handoff_seconds, 0.0),
        ("decodeSlots", s.decode_slots, 1),
        ("contextLength", s.context_length, 1),
    ]
