"""Prompts of a wanted length, and request bodies.

Words have three letters and a space before them: one token each for the usual vocabularies, and for the simulated engine,
which counts four bytes as a token. A prompt is a slice of one long tape of words, which costs microseconds; four words in
front of it spell the request's number (or the block's, where the trace tells which prompts share blocks), so that no prefix
cache helps by chance. Equal seeds give equal prompts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from e2e.load.arrivals import Arrival
from e2e.load.spec import Endpoint, Target

_LIST = """
the and for are but not you all any can had her was one our out day get has him his how man new now old see two way who
boy did its let put say she too use dad act add age ago air arm art ask bad bag bar bed big bit box bus buy car cut dog eat
end far few
"""
WORDS = _LIST.split()
BLOCK_TOKENS = 512  # Mooncake's
_TAPE_WORDS = 1 << 16
_HEADER_WORDS = 4  # 64 words to the power of 4: 16.7 million numbers


class Prompts:
    """Makes the body of each request of a run."""

    def __init__(self, target: Target, seed: int) -> None:
        self._seed = seed
        self._tape = " ".join(random.Random(f"tape {seed}").choices(WORDS, k=_TAPE_WORDS)) + " "
        fields: dict[str, Any] = {
            "model": target.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            **target.extra,
        }
        self._front, self._back = _around(fields, target.endpoint)

    def text(self, number: int, arrival: Arrival) -> str:
        """The prompt of request `number`: `arrival.prompt_tokens` words."""
        left = arrival.prompt_tokens
        parts = []
        for block in arrival.blocks:
            parts.append(self._words(block, min(left, BLOCK_TOKENS)))
            left -= min(left, BLOCK_TOKENS)
        if left:
            parts.append(self._words(number, left))
        return "".join(parts).rstrip()

    def body(self, number: int, arrival: Arrival) -> bytes:
        """The JSON of request `number`."""
        middle = f'{self.text(number, arrival)}{self._back}"max_tokens":{arrival.output_tokens}}}'
        return (self._front + middle).encode()

    def _words(self, number: int, count: int) -> str:
        header = [WORDS[number >> shift & 63] for shift in (0, 6, 12, 18)][:count]
        rest = count - len(header)
        start = random.Random(f"{self._seed} {number}").randrange(_TAPE_WORDS) * 4
        repeated = self._tape * (1 + (start + rest * 4) // len(self._tape))
        return " ".join(header) + " " + repeated[start : start + rest * 4]


def _around(fields: Mapping[str, Any], endpoint: Endpoint) -> tuple[str, str]:
    """A body's text before the prompt and after it; words need no escaping."""
    front = json.dumps(fields, separators=(",", ":"))[:-1]
    if endpoint is Endpoint.CHAT:
        return f'{front},"messages":[{{"role":"user","content":"', '"}],'
    return f'{front},"prompt":"', '",'
