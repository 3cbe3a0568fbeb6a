"""Real vLLM on processors, prefilled in one pod and decoded in another by NIXL over TCP, as the operator and the gateway run it.

Its image is built from the package index and its model is converted by our own tools. A pair that computes a prompt anew where
its state is lost stands beside an engine that does both roles: what they say must be equal. `make test-full` runs this.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import jsonschema
import pytest
from steelyard.api.labels import DECODE, PREFILL

from e2e.images.build import build_archives
from e2e.platform import Platform
from e2e.vllm import models
from e2e.vllm.lost import without_its_prefill
from e2e.vllm.serving import ADAPTED, CACHED, COMPUTED, FETCHED, Service, service, serving

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

PROMPTS = (
    "Once upon a time in a small village by the sea there lived an old fisherman who told the children stories, and",
    "The three most important things to know about the weather in the mountains are",
    "A recipe for apple pie:\n1. Peel the apples.\n2.",
    "The capital of France is",
    "def fibonacci(n):\n    ",
)
UNSEEN = "In the year when the river froze, the miller's daughter walked to the town on the other side and"
LOST = "The clockmaker had promised the mayor that the tower's bells would ring at noon, but when the hour came"
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "coast": {"type": "boolean"},
        "size": {"enum": ["small", "middling", "large"]},
    },
    "required": ["city", "coast", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def image(platform: Platform) -> str:
    """The image, on every node."""
    [(reference, archive)] = build_archives(["vllm"]).items()
    platform.cluster.load([archive])
    return reference


@pytest.fixture(scope="module")
def both(platform: Platform, image: str) -> Iterator[tuple[Service, Service]]:
    """A pair that computes anew what it cannot fetch, and the same engine in one pod."""
    wanted = [
        service("pair", image, "Disaggregated", transfer={"connector": "nixl", "onFailure": "recompute"}),
        service("whole", image, "Aggregated"),
    ]
    with serving(platform, "vllm", str(models.folder(print)), wanted) as (pair, whole):
        yield pair, whole


def test_decode_computes_nothing_of_a_prompt_that_was_prefilled(both: tuple[Service, Service]) -> None:
    pair, _ = both
    before = {pool: pair.prompt_tokens(pool) for pool in (PREFILL, DECODE)}
    reply = pair.ask(UNSEEN)
    assert reply.status_code == 200, reply.text
    tokens = reply.json()["usage"]["prompt_tokens"]
    after = {pool: pair.prompt_tokens(pool) for pool in (PREFILL, DECODE)}
    gained = {pool: {name: after[pool][name] - before[pool][name] for name in after[pool]} for pool in after}
    assert gained[PREFILL] == {COMPUTED: tokens, CACHED: 0, FETCHED: 0}
    assert gained[DECODE] == {COMPUTED: 0, CACHED: 0, FETCHED: tokens}


def test_a_pair_says_what_one_engine_says(both: tuple[Service, Service]) -> None:
    pair, whole = both
    apart = [pair.text(prompt) for prompt in PROMPTS]
    assert apart == [whole.text(prompt) for prompt in PROMPTS]
    assert len(set(apart)) == len(PROMPTS)


def test_an_adapter_answers_by_its_name(both: tuple[Service, Service]) -> None:
    pair, whole = both
    adapted = [pair.text(prompt, ADAPTED) for prompt in PROMPTS]
    assert adapted == [whole.text(prompt, ADAPTED) for prompt in PROMPTS]
    plain = [pair.text(prompt) for prompt in PROMPTS]
    assert [prompt for prompt, one, other in zip(PROMPTS, adapted, plain, strict=True) if one == other] == []


def test_an_answer_has_the_form_of_a_schema(both: tuple[Service, Service]) -> None:
    pair, _ = both
    asked = {"messages": [{"role": "user", "content": "Tell me of a city."}], "max_tokens": 120}
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    reply = pair.post("chat/completions", {**asked, "response_format": form})
    assert reply.status_code == 200, reply.text
    jsonschema.validate(json.loads(reply.json()["choices"][0]["message"]["content"]), CITY)
    free = pair.post("chat/completions", asked).json()["choices"][0]["message"]["content"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(free)


def test_state_lost_with_its_prefill_pod_is_computed_anew(both: tuple[Service, Service]) -> None:
    pair, whole = both
    before = pair.prompt_tokens(DECODE)
    reply = without_its_prefill(pair, LOST)
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["text"] == whole.text(LOST)
    after = pair.prompt_tokens(DECODE)
    assert after[COMPUTED] - before[COMPUTED] == reply.json()["usage"]["prompt_tokens"]
    assert after[FETCHED] == before[FETCHED]
