"""A service that asks for much at once of the embedded engine: 8-bit keys and values, guesses, a window, answers in a form.

Each is shown to act by its own metric in the pods, with a pair of them behind the gateway; that none of it changes a text is
shown on processes (images/engine/tests/test_engine_techniques.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from steelyard.api.labels import ENGINE_PORT, POOL, SERVICE

from e2e.platform import EXAMPLES, Platform, Served

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAMESPACE, NAME = "techniques", "techniques"
WINDOW = 252
ASKED: dict[str, Any] = {
    "quantization": {"kvCache": "int8"},
    "speculation": {"method": "ngram", "tokens": 4},
    "cache": {"eviction": {"policy": "streaming", "windowTokens": WINDOW}},
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
LIST = "apple, pear, plum, cherry, " * 60  # longer than the window, and easy to guess


@pytest.fixture(scope="module")
def served(platform: Platform) -> Iterator[Served]:
    """The example's service with all of `ASKED`."""
    body = yaml.safe_load((EXAMPLES / "smollm2.yaml").read_text())
    body["metadata"]["name"] = NAME
    body["spec"] |= ASKED
    platform.apply(yaml.safe_dump(body), NAMESPACE)
    platform.wait_available(NAME, NAMESPACE)
    with platform.forward(f"svc/{NAME}", 8000, NAMESPACE) as url:
        yield Served(NAMESPACE, NAME, url)
    platform.kubectl("delete", "inferenceservice", NAME, "-n", NAMESPACE, "--ignore-not-found")
    platform.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def samples(platform: Platform, pool: str) -> list[Any]:
    """Every sample that the pool's only pod has."""
    found = platform.items("pod", NAMESPACE, f"{SERVICE}={NAME},{POOL}={pool}")
    with platform.forward(f"pod/{found[0]['metadata']['name']}", ENGINE_PORT, NAMESPACE) as url:
        page = httpx.get(f"{url}/metrics", timeout=60).text
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def value(found: list[Any], name: str) -> float:
    return sum(float(sample.value) for sample in found if sample.name == name)


def test_an_answer_has_its_form_and_a_long_text_its_window(platform: Platform, served: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    body = {"model": "smollm2", "temperature": 0, "max_tokens": 60}
    messages = [{"role": "user", "content": "Tell me of a city."}]
    reply = httpx.post(
        f"{served.url}/v1/chat/completions", json=body | {"messages": messages, "response_format": form}, timeout=120
    )
    assert reply.status_code == 200, reply.text
    city = json.loads(reply.json()["choices"][0]["message"]["content"])
    assert (set(city), type(city["people"])) == ({"city", "people"}, int)
    reply = httpx.post(f"{served.url}/v1/completions", json=body | {"prompt": LIST}, timeout=120)
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["prompt_tokens"] > WINDOW

    prefill, decode = (samples(platform, pool) for pool in ("prefill", "decode"))
    for found in (prefill, decode):
        told = next(sample.labels for sample in found if sample.name == "steelyard_engine_info")
        assert (told["kv"], told["speculation"]) == ("q8_0", "ngram")
        assert value(found, "steelyard_engine_kv_transfer_failures_total") == 0
    assert value(prefill, "steelyard_engine_kv_forgotten_tokens_total") > 0
    assert value(decode, "vllm:spec_decode_num_accepted_tokens_total") > 0, "a list that repeats itself is guessed"
    pulled = [sample for sample in decode if sample.name == "vllm:prompt_tokens_by_source_total"]
    by_source = {sample.labels["source"]: sample.value for sample in pulled}
    assert by_source["local_compute"] == 2, (
        "the last token of each prompt, also of the one that was longer than the window"
    )
