"""A simulated engine's profile, as files of --profile hold it."""

from typing import Any

PROFILE: dict[str, Any] = {
    "startupSeconds": 5.0,
    "kvTokens": 100_000,
    "prefill": {"a": 0.01, "b": 5e-5, "c": 0.0},
    "decode": {"g0": 0.01, "g1": 0.02, "g2": 0.0, "g3": 1e-4},
    "transferBytesPerSecond": 1e10,
    "bytesPerToken": 100_000,
}
