"""Numerics `fast`, with the real model: the answers are the model's, hand-off works, and states do not mix with others'.

What is lost is only that a text is the same under any load, so nothing here compares whole texts of two ways to compute
them: prompts are such that the model is sure of what follows, by far more than a rounding.
"""

from typing import Any

import pytest

from conftest import Running, Start

COMPLETION = "/v1/completions"
COUNTING = ", ".join(str(number) for number in range(1, 100)) + ", "  # longer than the micro-batches of `reproducible`
GOES_ON = "100, 101, 102"


@pytest.fixture(scope="module")
def start(start_engine: Start, gguf: str) -> Start:
    def start(**flags: object) -> Running:
        return start_engine(**{"backend": "llama", "served_name": "smollm2", "model": gguf} | flags)

    return start


@pytest.fixture(scope="module")
def prefill(start: Start) -> Running:
    return start(numerics="fast")


@pytest.fixture(scope="module")
def decode(start: Start) -> Running:
    return start(numerics="fast")


def count(engine: Running, **fields: Any) -> dict[str, Any]:
    return engine.complete(COUNTING, temperature=0, max_tokens=16, **fields)


def handed(prefill: Running) -> dict[str, Any]:
    first = prefill.complete(COUNTING, temperature=0, max_tokens=1, kv_transfer_params={"do_remote_decode": True})
    return {"kv_transfer_params": first["kv_transfer_params"]}


def failures(engine: Running) -> float:
    return engine.metric("steelyard_engine_kv_transfer_failures_total")


def test_it_answers_as_the_model_does(prefill: Running) -> None:
    assert count(prefill)["choices"][0]["text"].startswith(GOES_ON)


def test_a_state_is_handed_over_and_used(prefill: Running, decode: Running) -> None:
    answer = count(decode, **handed(prefill))
    assert answer["choices"][0]["text"].startswith(GOES_ON)
    pulled = decode.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer")
    assert pulled == answer["usage"]["prompt_tokens"] - 1
    assert failures(decode) == 0


def test_an_engine_that_promises_one_text_does_not_take_a_fast_ones_state(prefill: Running, start: Start) -> None:
    """The bytes would fit; but then its answer would depend on how others computed the prompt."""
    reproducible = start()
    alone = count(reproducible)
    told = failures(reproducible)
    assert count(reproducible, **handed(prefill))["choices"] == alone["choices"]
    assert failures(reproducible) == told + 1
