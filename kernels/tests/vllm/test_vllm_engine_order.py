"""Our scheduler inside a real vLLM engine, by `--scheduler-cls`: who gets the first token first.

The engine computes one sequence at a time, and all requests wait in it before it begins, so that the order of first tokens is
the order of its waiting line. The model is a tiny one of random weights.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from steelyard_kernels.vllm_plugin.scheduler import LateLastScheduler
from tiny_model import CONFIG

OURS = f"{LateLastScheduler.__module__}.{LateLastScheduler.__qualname__}"
LONG_AGO = 300.0  # seconds


class Asked(NamedTuple):
    """A request: its name, the tokens of its prompt, and how long ago it arrived."""

    name: str
    tokens: int
    ago: float = 0.0


@contextmanager
def engine(folder: Path, scheduler: str | None, settings: dict[str, Any]) -> Iterator[Any]:
    from vllm import LLM

    (folder / "config.json").write_text(
        json.dumps({**CONFIG, "hidden_size": 128, "head_dim": 32})
    )  # heads that it can do
    ours = {"scheduler_cls": scheduler, "additional_config": {"steelyard": settings}} if scheduler else {}
    made = LLM(
        model=str(folder), load_format="dummy", skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
        max_model_len=256, kv_cache_memory_bytes=16 << 20, max_num_seqs=1, enable_prefix_caching=False, disable_log_stats=True,
        **ours,
    )  # fmt: skip
    try:
        yield made.llm_engine
    finally:
        made.llm_engine.engine_core.shutdown()


def order(engine: Any, requests: list[Asked]) -> list[str]:
    """The names in the order of their first tokens."""
    from vllm import SamplingParams

    one = SamplingParams(max_tokens=1, temperature=0, detokenize=False)
    for number, asked in enumerate(requests):
        prompt = {"prompt_token_ids": [(number + place) % 200 + 10 for place in range(asked.tokens)]}
        engine.add_request(asked.name, prompt, one, arrival_time=time.time() - asked.ago)
    seen: list[str] = []
    while engine.has_unfinished_requests():
        for output in engine.step():
            name = next(asked.name for asked in requests if output.request_id.startswith(asked.name))
            if output.outputs[0].token_ids and name not in seen:
                seen.append(name)
    return seen


MIXED = [Asked("long", 200), Asked("late", 20, LONG_AGO), Asked("middle", 100), Asked("short", 50)]


@pytest.mark.parametrize(
    ("scheduler", "settings", "expected", "because"),
    [
        (None, {}, ["long", "late", "middle", "short"], "vLLM's own: first come, first served"),
        (OURS, {}, ["late", "short", "middle", "long"], "shortest first; without an objective nobody is late"),
        (
            OURS,
            {"ttft_seconds": LONG_AGO / 2, "prefill_tokens_per_second": 1000},
            ["short", "middle", "long", "late"],
            "who can no longer be in time does not hold up the others, however short it is",
        ),
    ],
    ids=["vLLM's own", "shortest first", "late last"],
)
def test_the_order_of_first_tokens(
    scheduler: str | None, settings: dict[str, Any], expected: list[str], because: str, tmp_path: Path
) -> None:
    with engine(tmp_path, scheduler, settings) as running:
        assert order(running, MIXED) == expected, because
