"""The requests: Poisson arrivals of prompts that share nothing, with answers of a known length."""

from __future__ import annotations

import random
from dataclasses import dataclass

FIRST_TOKEN, LAST_TOKEN = 1000, 40_000  # of the prompts: plain words of the vocabulary, drawn at random


@dataclass(frozen=True)
class Asked:
    """One request; `at` is in seconds."""

    at: float
    prompt: tuple[int, ...]
    answer: int


def requests(count: int, rate: float, seed: int) -> list[Asked]:
    """`count` requests at `rate` per second. Every rate has the same prompts and answers, in the same order.

    Three quarters are short questions (32 to 96 tokens) with answers of 16 to 48 tokens; a quarter are documents of 320 to
    640 tokens with answers of 4 to 12, which is what makes strategies differ.
    """
    gaps, sizes = random.Random(f"gaps {seed}"), random.Random(f"sizes {seed}")
    found, at = [], 0.0
    for _ in range(count):
        at += gaps.expovariate(1.0) / rate
        document = sizes.random() < 0.25
        prompt = sizes.randint(320, 640) if document else sizes.randint(32, 96)
        answer = sizes.randint(4, 12) if document else sizes.randint(16, 48)
        found.append(Asked(at, tuple(sizes.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(prompt)), answer))
    return found
