"""Speed against bare loops: the same prompts on each, one right after the other, again and again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bench.engine.bare import Bare
from bench.engine.seen import Turn
from bench.engine.served import Prompt, Served

FIRST_TOKEN, LAST_TOKEN = 1000, 40_000  # of the prompts: plain words of the vocabulary, drawn at random, none repeated


@dataclass(frozen=True)
class Work:
    """What all are asked: `batch` prompts of `prompt` tokens, then `steps` tokens of each, 0 for prefill alone."""

    name: str
    batch: int
    prompt: int
    steps: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that count."""
        return self.batch * (self.steps or self.prompt)

    def prompts(self, chance: random.Random) -> list[Prompt]:
        """Fresh ones: the engine would find known ones in its prefix cache."""
        return [[chance.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(self.prompt)] for _ in range(self.batch)]


WORKS = (
    Work("prefill, batch 1", 1, 768),
    Work("prefill, batch 8", 8, 96),
    Work("decode, batch 1", 1, 48, 64),
    Work("decode, batch 8", 8, 48, 32),
)


async def turns(
    engine: Served, fast: Served, defaults: Bare, settings: Bare, rounds: int, say: Callable[[str], None]
) -> list[Turn]:
    """Every work `rounds` times; the order is turned round each time, and a first round that warms all does not count."""
    chance, found = random.Random(4), []
    loops, engines = {"defaults": defaults, "settings": settings}, {"engine": engine, "fast": fast}
    for number in range(rounds + 1):
        for work in WORKS:
            prompts = work.prompts(chance)
            speeds = {}
            for name in ("engine", "defaults", "fast", "settings")[:: 1 if number % 2 else -1]:
                if name in engines:
                    one = engines[name]
                    spent = await (one.decode(prompts, work.steps) if work.steps else one.prefill(prompts))
                else:
                    bare = loops[name]
                    spent = bare.decode(prompts, work.steps) if work.steps else bare.prefill(prompts)
                speeds[name] = work.tokens / spent
            if number:
                found.append(Turn(work.name, **speeds))
        last = ", ".join(
            f"{turn.work} {turn.engine / turn.defaults:.2f}×, {turn.fast / turn.defaults:.2f}×"
            for turn in found[-len(WORKS) :]
        )
        say(f"round {number} of {rounds} {last}".rstrip())
    return found
