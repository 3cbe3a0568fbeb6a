"""What is asked of every subject, in this order, on one fresh process.

The paced streams come first, because memory per stream is read against a process that has served little before.
"""

from __future__ import annotations

from dataclasses import dataclass

PACED_STREAMS = 500
CHUNKS_PER_SECOND = 30


@dataclass(frozen=True)
class Scenario:
    """One run of the load client; see the head of `native/load.c` for what each figure means there."""

    name: str
    words: str
    streams: int = 0
    rate: float = 0.0
    ramp: float = 0.0
    warm: float = 0.5
    seconds: float = 3.0
    streamed: bool = False
    tokens: int = 16
    interval_us: int = 0

    def settings(self) -> tuple[str, ...]:
        """The load client's words for it."""
        named = {
            "streams": self.streams,
            "rate": self.rate,
            "ramp": self.ramp,
            "warm": self.warm,
            "seconds": self.seconds,
            "stream": int(self.streamed),
            "tokens": self.tokens,
            "interval_us": self.interval_us,
        }
        return tuple(f"{name}={value}" for name, value in named.items())

    @property
    def duration(self) -> float:
        """Seconds it takes at least."""
        return self.warm + self.seconds


def scenarios(seconds: float) -> tuple[Scenario, ...]:
    """All of them, each with a measured window of `seconds`."""
    warm, ramp = 1.5, 1.0
    paced_tokens = round((warm + seconds + 0.5) * CHUNKS_PER_SECOND)  # every stream lives beyond the window
    return (
        Scenario("warm-up", "a few short streams, not counted", streams=4, warm=0.1, seconds=0.4, streamed=True),
        Scenario(
            "paced", f"{PACED_STREAMS} streams of {CHUNKS_PER_SECOND} chunks/s", streams=PACED_STREAMS, ramp=ramp, warm=warm,
            seconds=seconds, streamed=True, tokens=paced_tokens, interval_us=1_000_000 // CHUNKS_PER_SECOND,
        ),
        Scenario(
            "arrivals", "open loop of 200 requests/s, answers of 4 streamed chunks", rate=200.0, seconds=seconds,
            streamed=True, tokens=4,
        ),
        Scenario("requests", "closed loop of 32, short answers in one piece", streams=32, seconds=seconds),
        Scenario(
            "flat-out", "200 streams as fast as they go", streams=200, warm=1.0, seconds=seconds, streamed=True, tokens=1000,
        ),
    )  # fmt: skip
