"""The bodies of both legs, made from a client's."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from steelyard.gateway.bodies import CHAT, COMPLETIONS, decode_body, prefill_body, read_body
from steelyard.gateway.errors import ClientError

KV = {
    "do_remote_prefill": True,
    "remote_request_id": "cap",
    "remote_block_ids": [[1, 2]],
    "odd": 1e400 if False else None,
}
PROMPTS = {CHAT: {"messages": [{"role": "user", "content": "hi"}]}, COMPLETIONS: {"prompt": "hi"}}


def legs(path: bytes, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    body = read_body(path, json.dumps({"model": "m", **PROMPTS[path], **fields}).encode())
    return json.loads(prefill_body(body)), json.loads(decode_body(body, Raw(json.dumps(KV).encode())))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_tokens": 500},
        {"max_completion_tokens": 500},
        {"max_tokens": 400, "max_completion_tokens": 500},
        {"max_completion_tokens": 500, "min_tokens": 100},
        {"n": 2, "best_of": 3, "max_tokens": 64},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True, "max_tokens": None},
        {"unknown_field": {"deep": [1, {"x": None}]}, "logprobs": True, "top_logprobs": 2, "stop": ["\n"]},
    ],
    ids=json.dumps,
)
def test_f01_f02_the_prefill_leg_makes_one_token_whatever_the_client_says(path: bytes, fields: dict[str, Any]) -> None:
    """llm-d/llm-d-router#400, #2085: only the older limit field was set to 1, in one code path; prefill generated all."""
    prefill, decode = legs(path, **fields)
    assert prefill["max_tokens"] == 1
    assert prefill.get("max_completion_tokens", 1) == 1
    assert prefill["stream"] is False
    assert not {"stream_options", "min_tokens", "n", "best_of"} & prefill.keys()
    assert prefill["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
    expected = {"model": "m", **PROMPTS[path], **fields, "kv_transfer_params": KV}
    if fields.get("stream") and "stream_options" not in fields:
        expected["stream_options"] = {"include_usage": True}
    assert decode == expected, "the client's own fields, and the absence of those it left out"


ACTED_ON = (
    "model",
    "prompt",
    "stream",
    "n",
    "stream_options",
    "kv_transfer_params",
    "max_tokens",
    "disagg_prefill_resp",
)
NAMES = st.text(min_size=1).filter(lambda name: name not in ACTED_ON and not name.startswith("bootstrap_"))
LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(), v, max_size=3), max_leaves=6
)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_fields_the_gateway_does_not_know_pass_untouched(fields: dict[str, Any]) -> None:
    _, decode = legs(COMPLETIONS, **fields)
    assert decode == {"model": "m", "prompt": "hi", **fields, "kv_transfer_params": KV}


def test_numbers_pass_digit_by_digit() -> None:
    raw = b'{"model":"m","prompt":"x","temperature":0.10000000000000000001,"seed":123456789012345678901234567890}'
    out = decode_body(read_body(COMPLETIONS, raw), None)
    assert b"0.10000000000000000001" in out
    assert b"123456789012345678901234567890" in out


def test_options_of_a_stream_are_kept_beside_the_request_for_usage() -> None:
    _, decode = legs(CHAT, stream=True, stream_options={"include_usage": False, "other": 1})
    assert decode["stream_options"] == {"include_usage": True, "other": 1}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'{"model":', "not a JSON object"),
        (b'"' + b"\xff" * 10 + b'"', "not a JSON object"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "JSON object|missing"),
        (b'{"prompt":"x"}', "'model' is missing"),
        (b'{"model":7,"prompt":"x"}', "'model' must be a string"),
        (b'{"model":"m"}', "'prompt' is missing"),
        (b'{"model":"m","prompt":null}', "'prompt' is missing"),
        (b'{"model":"m","prompt":"x","stream":"yes"}', "'stream' must be true or false"),
        (b'{"model":"m","prompt":"x","stream_options":[]}', "'stream_options' must be an object"),
        (b'{"model":"m","prompt":"x","n":"two"}', "'n' must be a whole number"),
        (b'{"model":"m","prompt":"x","kv_transfer_params":{"remote_host":"10.0.0.1"}}', "set by the gateway"),
        (b'{"model":"m","prompt":"x","bootstrap_host":"10.0.0.1"}', "set by the gateway"),
    ],
)
def test_bodies_that_cannot_be_right(body: bytes, message: str) -> None:
    with pytest.raises(ClientError, match=message) as caught:
        read_body(COMPLETIONS, body)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [("[1, 2, 3]", 3), ("[15]", 1), ('["a","b"]', None), ('"1,2"', None), ("[]", None), ("[[1,2],[3]]", None)],
)
def test_a_prompt_of_token_ids_is_counted_exactly(prompt: str, ids: int | None) -> None:
    assert read_body(COMPLETIONS, f'{{"model":"m","prompt":{prompt}}}'.encode()).prompt_token_ids == ids
