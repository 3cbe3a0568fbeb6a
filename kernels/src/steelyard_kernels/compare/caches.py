"""Policies for keys and values: bytes a token, and perplexity of the tokens after a long prefix.

Every policy sees the same prefix, computed once: a step's own tokens see each other as they are, so caches differ only afterwards.
Policies that turn keys when they are read store other keys, and have a prefix pass of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard_kernels.compare.subject import PREFIX, Subject
from steelyard_kernels.kv.cache import Cache, WholeCache
from steelyard_kernels.kv.heavy import HeavyCache
from steelyard_kernels.kv.kivi import KiviCache
from steelyard_kernels.kv.progressive import ProgressiveCache
from steelyard_kernels.kv.scaled import ScaledCache
from steelyard_kernels.kv.snap import SnapCache
from steelyard_kernels.kv.streaming import StreamingCache

STEP = 16  # tokens that are fed at once after the prefix
BUDGETS = (128, 64)
RESIDUAL = 64
SINKS = 4


class Policy(NamedTuple):
    """A name, how a layer's cache is made, tokens kept of the prefix (None: all), and whether a quick run has it."""

    name: str
    make: Callable[[], Cache]
    budget: int | None = None
    quick: bool = False


def policies() -> list[Policy]:
    """All of them; those by budget keep `budget` tokens."""
    found = [
        Policy("all, 16 bits", WholeCache, quick=True),
        Policy("FP8", partial(ScaledCache, "fp8")),
        Policy("INT8", partial(ScaledCache, "int8")),
        Policy("KIVI-4", partial(KiviCache, 4, residual=RESIDUAL), quick=True),
        Policy("KIVI-2", partial(KiviCache, 2, residual=RESIDUAL), quick=True),
        Policy("PM-KVQ, 4 bits at the end", partial(ProgressiveCache, 0, least_bits=4, window=RESIDUAL)),
    ]
    for budget in BUDGETS:
        found += [
            Policy(f"StreamingLLM, {budget} tokens", partial(StreamingCache, SINKS, budget - SINKS), budget),
            Policy(f"H2O, {budget} tokens", partial(HeavyCache, budget // 2, budget // 2), budget),
            Policy(f"SnapKV, {budget} tokens", partial(SnapCache, budget, 16), budget),
        ]
    return found


class InBf16(Cache):
    """Gives a policy keys and values in bf16, as an engine has them, so that its bytes are those of an engine."""

    def __init__(self, policy: Cache) -> None:
        super().__init__()
        self.policy = policy
        self.rotates_at_read = policy.rotates_at_read  # type: ignore[misc]  # of the class elsewhere

    def _extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy.extend(keys.bfloat16(), values.bfloat16())

    def settle(self, probabilities: Tensor) -> None:
        """The policy's."""
        self.policy.settle(probabilities)

    def bytes(self) -> int:
        """The policy's."""
        return self.policy.bytes()


class Fan(Cache):
    """Hands one pass's keys, values and probabilities to the caches of many policies."""

    def __init__(self, caches: Sequence[Cache], rotates: bool) -> None:
        super().__init__()
        self.caches, self.rotates_at_read = caches, rotates  # type: ignore[misc]

    def _extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        for cache in self.caches:
            cache.extend(keys, values)
        return keys, values

    def settle(self, probabilities: Tensor) -> None:
        """Let every policy drop or compress."""
        for cache in self.caches:
            cache.settle(probabilities)

    def bytes(self) -> int:
        """Of all together."""
        return sum(cache.bytes() for cache in self.caches)


@torch.no_grad()
def measure(subject: Subject, quick: bool) -> list[dict[str, Any]]:
    """Perplexity after the prefix and bytes a token, for each policy."""
    chosen = [policy for policy in policies() if policy.quick or not quick]
    losses: dict[str, list[Tensor]] = {policy.name: [] for policy in chosen}
    sizes: dict[str, float] = {}
    for window in subject.long:
        for turning in (False, True):
            group = [policy for policy in chosen if policy.make().rotates_at_read == turning]
            if not group:
                continue
            caches = [[InBf16(policy.make()) for policy in group] for _ in range(subject.model.shape.layers)]
            first = subject.model.forward(window[:PREFIX], [Fan(layer, turning) for layer in caches])[-1:]
            for number, policy in enumerate(group):
                own = [layer[number] for layer in caches]
                losses[policy.name].append(_after_prefix(subject, window, own, first))
                sizes[policy.name] = sum(cache.bytes() for cache in own) / len(window)
    return [
        {
            "name": policy.name,
            "budget": policy.budget,
            "perplexity": torch.stack(losses[policy.name]).mean().exp().item(),
            "bytes_per_token": sizes[policy.name],
        }
        for policy in chosen
    ]


def _after_prefix(subject: Subject, window: Tensor, caches: Sequence[Cache], first: Tensor) -> Tensor:
    """Mean −ln p of the tokens after the prefix, fed STEP at a time."""
    rest = window[PREFIX:]
    steps = (rest[start : start + STEP] for start in range(0, len(rest) - 1, STEP))
    logits = [first, *(subject.model.forward(step, caches) for step in steps)]
    return F.cross_entropy(torch.cat(logits)[: len(rest)], rest)
