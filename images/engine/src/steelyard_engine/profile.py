"""The profile of a simulated accelerator: how long a pass takes, how much KV fits, how fast state moves.

Times are seconds, sizes tokens and bytes. The schema is the one of the planner and the simulator, so that one profile
gives the same figures everywhere. Unknown keys are refused: a misspelt coefficient must not count as zero.
"""

from pathlib import Path

import msgspec


class Prefill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pass over n new tokens takes a + b·n + c·n² seconds."""

    a: float
    b: float
    c: float = 0.0

    def seconds(self, tokens: int) -> float:
        """Return the time of a pass over `tokens` new tokens."""
        return self.a + self.b * tokens + self.c * tokens**2


class Decode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of n sequences at KV use u (0 to 1) takes g0 + g1·u + g2·u² + g3·n seconds."""

    g0: float
    g1: float = 0.0
    g2: float = 0.0
    g3: float = 0.0

    def seconds(self, sequences: int, kv_use: float) -> float:
        """Return the time of a step of `sequences` sequences at KV use `kv_use`."""
        return self.g0 + self.g1 * kv_use + self.g2 * kv_use**2 + self.g3 * sequences


class Profile(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """All that a simulated engine knows of its accelerator and model."""

    prefill: Prefill
    decode: Decode
    kv_tokens: int
    startup_seconds: float = 0.0
    transfer_bytes_per_second: float = 2.5e10
    bytes_per_token: int = 131072
    acceptance: float = 0.6  # share of guesses that are right, where the engine speculates

    def step_seconds(self, prefill_tokens: int, sequences: int, kv_use: float, guesses: int = 0) -> float:
        """Return the time of one mixed step; its fixed cost (reading the weights) is paid once.

        A guessed token costs what a token of a prompt does: it is computed beside others that are.
        """
        prefill = self.prefill.seconds(prefill_tokens) if prefill_tokens else 0.0
        decode = self.decode.seconds(sequences, kv_use) if sequences else 0.0
        shared = min(self.prefill.a, self.decode.g0) if prefill_tokens and sequences else 0.0
        return max(0.0, prefill + decode - shared) + self.prefill.b * guesses


def read_profile(path: Path) -> Profile:
    """Read a profile; raise ValueError with the file, the field and what is wrong with it."""
    try:
        profile = msgspec.json.decode(path.read_bytes(), type=Profile)
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"--profile {path}: {error}") from error
    if not 0 <= profile.acceptance <= 1:
        raise ValueError(f"--profile {path}: acceptance {profile.acceptance} is not a share between 0 and 1")
    if profile.kv_tokens < 1 or profile.transfer_bytes_per_second <= 0 or profile.startup_seconds < 0:
        raise ValueError(
            f"--profile {path}: kvTokens and transferBytesPerSecond must be positive, startupSeconds not negative"
        )
    return profile
