"""A model that computes nothing and takes the time its profile says: for rehearsing GPU fleets without GPUs.

Its tokens are four bytes of text in, one invented word out. The next word is a function of the last token and its
place, so a hand-off that loses or repeats a token changes the text. An answer never ends by itself: it has the length
that the request allows, 64 tokens where a chat sets none.
"""

import time
from collections.abc import Collection
from collections.abc import Sequence as Tokens
from hashlib import blake2b

from ..chat import CHATML
from ..profile import Profile
from ..sampling import Sampling
from ..steps import Chunk, Free, Sequence, Share, Shift
from ..structure import Form

_SENTENCE = (
    "the a one this steel yard beam weight scale ratio pan hook load balance moves holds slides turns rests tips "
    "slow fast even long short near far left right and or but then so while until over under of with by in on to"
)
_OVERLAP_SECONDS = 0.02  # our own work between two steps counts into the next: engines overlap theirs with computing
WORDS = _SENTENCE.split()


class SimulatedBackend:
    """Keeps time by a profile; sleeping releases the interpreter, as a real model's step does."""

    chat_template = CHATML
    special: dict[str, str] = {"bos_token": "", "eos_token": ""}  # noqa: RUF012 (the protocol's attribute, never changed)
    end_tokens: frozenset[int] = frozenset()
    default_answer: int | None = 64
    layout = "simulated"

    def __init__(self, profile: Profile, served_name: str, kv_tokens: int | None, slots: int) -> None:
        self._profile = profile
        self.model_id = blake2b(served_name.encode(), digest_size=16).hexdigest()
        self.kv_tokens = self.prefix_tokens = kv_tokens or profile.kv_tokens
        self.slots = slots
        self.acceptance = profile.acceptance
        self.vocabulary = 2**32
        self._until = 0.0  # end of the last step, monotonic seconds

    def load(self) -> None:
        """Take the profile's start-up time."""
        time.sleep(self._profile.startup_seconds)

    def identity(self, adapter: str) -> str:
        """Return a digest of the name: there are no weights."""
        return f"{self.model_id}+{adapter}" if adapter else self.model_id

    def facts(self) -> dict[str, str]:
        """Say that nothing is real."""
        return {"weights": "simulated", "kv": "simulated"}

    def grammar(self, form: Form) -> str:
        """Refuse: words that are invented follow no form."""
        raise ValueError("the simulated engine invents its words; leave it out")

    def tokenize(self, text: str, add_special: bool) -> list[int]:
        """Count four bytes as one token."""
        data = text.encode()
        return [int.from_bytes(data[start : start + 4], "big") for start in range(0, len(data), 4)]

    def piece(self, token: int) -> bytes:
        """Return the word of an answer's token, with a space before it."""
        return b" " + WORDS[token % len(WORDS)].encode()

    def apply(self, operation: Free | Share | Shift) -> None:
        """Keep no KV: the scheduler's count is all there is."""

    def run(self, chunks: Tokens[Chunk], sampling: dict[int, Sampling], kv_use: float) -> dict[int, Tokens[int]]:
        """Sleep as long as the batch would take, and invent a token for each chunk that asks for one."""
        now = time.monotonic()
        started = self._until if now - self._until < _OVERLAP_SECONDS else now
        decodes = sum(1 for chunk in chunks if chunk.is_decode)
        prefill_tokens = sum(chunk.end - chunk.start for chunk in chunks if not chunk.is_decode)
        guesses = sum(len(chunk.guesses) for chunk in chunks)
        seconds = self._profile.step_seconds(prefill_tokens, decodes, kv_use, guesses)
        sampled: dict[int, Tokens[int]] = {chunk.sequence.id: _answer(chunk) for chunk in chunks if chunk.sample}
        self._until = started + seconds
        time.sleep(max(0.0, self._until - time.monotonic()))
        return sampled

    def end(self, sequence: int) -> None:
        """Keep nothing for sampling."""

    def export_state(self, slot: int, tokens: int) -> bytes:
        """Return no bytes: the transfer is timed, not made."""
        return b""

    def import_state(self, slot: int, tokens: int, state: memoryview) -> None:
        """Accept any state that the hand-off's header has proved to be of this model and prompt."""

    def state_bytes(self, tokens: int, state: memoryview) -> int:
        """Return what a real state of `tokens` tokens would weigh."""
        return tokens * self._profile.bytes_per_token

    def transfer_seconds(self, tokens: int) -> float:
        """Return the time the profile's link takes for a state of `tokens` tokens."""
        return tokens * self._profile.bytes_per_token / self._profile.transfer_bytes_per_second

    def close(self) -> None:
        """Hold nothing that would need freeing."""


class Oracle:
    """Guesses of a simulated engine: `tokens` a step, each right with probability `acceptance`, by its place and token."""

    def __init__(self, tokens: int, acceptance: float) -> None:
        self._tokens = tokens
        self._acceptance = acceptance

    def propose(self, sequences: Tokens[Sequence]) -> dict[int, list[int]]:
        """See `Guesser`."""
        return {sequence.id: self._after(sequence.tokens) for sequence in sequences}

    def forget(self, running: Collection[int]) -> None:
        """Keep nothing."""

    def _after(self, tokens: list[int]) -> list[int]:
        found, last = [], tokens[-1]
        for place in range(len(tokens), len(tokens) + self._tokens):
            last = following(last, place)
            draw = blake2b(f"{last} {place}".encode(), digest_size=4).digest()
            right = int.from_bytes(draw, "big") < self._acceptance * 2**32
            found.append(last if right else (last + 1) % len(WORDS))
        return found


def following(token: int, place: int) -> int:
    """Return the token at `place` of a sequence behind `token`."""
    return (token * 31 + place) % len(WORDS)


def _answer(chunk: Chunk) -> list[int]:
    """Return the tokens behind a chunk: its guesses as far as they are right, and one more."""
    found = [following(chunk.sequence.tokens[chunk.end - 1], chunk.end)]
    for guess in chunk.guesses:
        if guess != found[-1]:
            break
        found.append(following(guess, chunk.end + len(found)))
    return found
