"""Reading requests: what is served with which meaning, and what is refused with which field and remedy."""

import asyncio
import json

import pytest
from aiohttp import ClientConnectionResetError, web
from aiohttp.test_utils import make_mocked_request
from steelyard_engine.api import Call, Kind, read_call
from steelyard_engine.backends.simulated import SimulatedBackend
from steelyard_engine.errors import ApiError
from steelyard_engine.profile import Decode, Prefill, Profile
from steelyard_engine.serve import errors_as_json

CONTEXT = 64  # tokens of four bytes
BACKEND = SimulatedBackend(Profile(Prefill(0, 0), Decode(0), kv_tokens=1024), "sim", None, slots=4)
CHAT = [{"role": "user", "content": "hi"}]


def read(kind: Kind, **body: object) -> Call:
    return read_call(kind, json.dumps(body).encode(), ("sim", "legal"), CONTEXT, BACKEND)


REFUSED = [
    # kind, body, status, field, part of the message
    ("completion", {}, 400, "prompt", "required"),
    ("completion", {"prompt": ["a", "b"]}, 400, "prompt", "send one request for each"),
    ("completion", {"prompt": [1, "b"]}, 400, "prompt", "send one request for each"),
    ("completion", {"prompt": ""}, 400, "prompt", "at least one token"),
    ("completion", {"prompt": []}, 400, "prompt", "at least one token"),
    ("completion", {"prompt": [2**32]}, 400, "prompt", "0..4294967295"),
    ("completion", {"prompt": "a", "model": "other"}, 404, "model", "ask for 'sim' or 'legal'"),
    ("completion", {"prompt": "a", "n": 2}, 400, "n", "one request for each choice"),
    ("completion", {"prompt": "a", "echo": True}, 400, "echo", "prepend"),
    ("completion", {"prompt": "a", "logprobs": 0}, 400, "logprobs", "no log-probabilities"),
    ("chat", {"messages": CHAT, "logprobs": True, "top_logprobs": 2}, 400, "logprobs", "no log-probabilities"),
    ("chat", {"messages": CHAT, "tools": [{}]}, 400, "tools", "in the prompt"),
    ("chat", {"messages": CHAT, "response_format": {"type": "json_object"}}, 400, "response_format", "invents"),
    ("chat", {"messages": []}, 400, "messages", "length"),
    ("chat", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages", "image_url"),
    ("completion", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens", ">= 1"),
    ("completion", {"prompt": "a", "max_tokens": "5"}, 400, "max_tokens", "int"),
    (
        "completion",
        {"prompt": "a", "max_tokens": 64},
        400,
        "max_tokens",
        "The context holds 64 tokens; the prompt has 1",
    ),
    ("completion", {"prompt": "a" * 256}, 400, "prompt", "The context holds 64 tokens; the prompt has 64"),
    ("chat", {"messages": [{"role": "user", "content": "a" * 300}]}, 400, "messages", "shorten"),
    ("completion", {"prompt": "a", "temperature": 2.5}, 400, "temperature", "<= 2"),
    ("completion", {"prompt": "a", "top_p": 0}, 400, "top_p", "> 0"),
    ("completion", {"prompt": "a", "stop": [""]}, 400, "stop", "none of them empty"),
    ("completion", {"prompt": "a", "stop": ["x"] * 17}, 400, "stop", "1 to 16"),
    (
        "completion",
        {"prompt": "a", "stream": True, "kv_transfer_params": {"do_remote_decode": True}},
        400,
        "stream",
        "false",
    ),
]


@pytest.mark.parametrize(("kind", "body", "status", "field", "text"), REFUSED)
def test_refused(kind: Kind, body: dict[str, object], status: int, field: str, text: str):
    with pytest.raises(ApiError) as caught:
        read(kind, **body)
    error = caught.value
    assert (error.status, error.param) == (status, field)
    assert text in error.message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"prompt": 1e999999}', b"[" * 10**6, b'"\\ud800"'])
def test_a_body_that_is_no_object_is_refused(data: bytes):
    with pytest.raises(ApiError) as caught:
        read_call("completion", data, ("sim", "legal"), CONTEXT, BACKEND)
    assert caught.value.status == 400


def test_neutral_values_and_unknown_fields_are_served():
    call = read(
        "completion",
        prompt="abcd",
        n=1,
        echo=False,
        logprobs=None,
        presence_penalty=0.0,
        user="me",
        top_k=-1,
        stop=None,
    )
    assert len(call.prompt) == 1
    assert call.stops == ()


LIMITS = [
    ("completion", {"prompt": "abcd"}, 16, "a completion has 16 tokens by default"),
    ("completion", {"prompt": "a" * 240}, 4, "the default shrinks to what fits"),
    ("completion", {"prompt": "abcd", "max_tokens": 63}, 63, "all that fits"),
    ("completion", {"prompt": "abcd", "max_completion_tokens": 1, "max_tokens": 9}, 1, "the newer field rules"),
    ("chat", {"messages": CHAT, "max_completion_tokens": 5}, 5, "the newer field"),
]


@pytest.mark.parametrize(("kind", "body", "tokens", "because"), LIMITS)
def test_answer_limit(kind: Kind, body: dict[str, object], tokens: int, because: str):
    assert read(kind, **body).max_tokens == tokens, because


def test_the_ways_to_write_a_prompt_are_equal():
    text = read("completion", prompt="abcdefgh")
    assert read("completion", prompt=["abcdefgh"]).prompt == text.prompt
    assert read("completion", prompt=list(text.prompt)).prompt == text.prompt


def test_content_parts_are_joined():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert (
        read("chat", messages=[{"role": "user", "content": parts}]).prompt
        == read("chat", messages=[{"role": "user", "content": "one\ntwo"}]).prompt
    )


def test_sampling_fields_keep_their_meaning():
    call = read("completion", prompt="a", temperature=0, top_p=0.5, seed=3, stop="x", ignore_eos=True, min_tokens=2)
    assert (call.sampling.temperature, call.sampling.top_p, call.sampling.seed, call.sampling.min_tokens) == (
        0,
        0.5,
        3,
        2,
    )
    assert (call.stops, call.ignore_eos) == (("x",), True)
    assert read("completion", prompt="a").sampling.seed != read("completion", prompt="a").sampling.seed


def test_a_client_that_is_gone_is_no_error(caplog: pytest.LogCaptureFixture):
    """aiohttp would log it with a traceback, once for every client that leaves while its answer is written."""

    async def leave(request: web.Request) -> web.StreamResponse:
        raise ClientConnectionResetError("Cannot write to closing transport")

    answer = asyncio.run(errors_as_json(make_mocked_request("POST", "/v1/completions"), leave))
    assert answer.status == 499
    assert not caplog.records
