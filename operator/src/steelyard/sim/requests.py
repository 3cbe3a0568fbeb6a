"""A request before it arrives, and while it is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from steelyard.sim.replica import Replica


class Arrival(NamedTuple):
    """One line of a trace: when (seconds from its start), prompt and answer in tokens.

    `cached` are prompt tokens known to be held by every replica; `blocks` are the prompt's prefix blocks (equal ids mean
    equal text up to and including the block), for replicas that keep a prefix cache of their own.
    """

    at: float
    prompt: int
    answer: int
    cached: int = 0
    blocks: tuple[int, ...] = ()


class Request:
    """The changing state of one request. A class with slots: millions are made, and each is touched some ten times."""

    __slots__ = (
        "answer", "arrived", "begun", "blocks", "cached", "context", "decoding", "first", "gone", "held_by", "key", "left",
        "local", "prefilled_at", "produced", "prompt", "replica", "reserved", "retried", "router", "sent_at", "tokens",
    )  # fmt: skip

    def __init__(self, key: int, arrival: Arrival) -> None:
        self.key = key
        self.arrived, self.prompt, self.answer, self.cached, self.blocks = arrival
        self.router = 0  # which gateway has it
        self.retried = False
        self.gone = False  # its client has left while it was in a pass or a step: forgotten at the end of that
        self.start_over()

    def start_over(self) -> None:
        """Nothing of it is computed, or what was is lost."""
        self.tokens = max(1, self.prompt - self.cached)  # prompt tokens to compute, as far as is known
        self.left = self.tokens  # of them, those still to be computed
        self.context = self.prompt  # tokens whose KV it has, or needs, when it starts to decode
        self.produced = 0  # tokens of the answer that were made before its present run
        self.reserved = False  # whether a replica has reserved its KV for prefill
        self.decoding = False  # whether it was sent to decode
        self.local = False  # whether it decodes where it is prefilled
        self.replica: Replica | None = None  # where it is prefilled or decoded
        self.held_by: Replica | None = None  # the prefill replica that keeps its finished KV
        self.first: float | None = None  # when its client has the first token; may be the end of the step under way
        self.prefilled_at: float | None = None
        self.begun = self.arrived  # when its prefill began
        self.sent_at = self.arrived
