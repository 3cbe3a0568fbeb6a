"""Anything may be sent to an engine: every request gets an answer of its own or a closed connection, and the engine goes on."""

import json
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Running, Start

GOOD = {"prompt": "weigh", "max_tokens": 2}
FIELDS = (
    "prompt",
    "messages",
    "model",
    "max_tokens",
    "stream",
    "stream_options",
    "stop",
    "seed",
    "temperature",
    "top_p",
)
FIELDS += ("min_tokens", "ignore_eos", "n", "logit_bias", "kv_transfer_params", "max_completion_tokens", "unheard_of")
QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

scalars = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=False) | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)


def post(body: bytes, path: str = "/v1/completions") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture(scope="module")
def engine(start_simulated: Start) -> Running:
    return start_simulated()


def sent(engine: Running, data: bytes) -> bytes:
    """What comes back until the engine closes or has answered; b"" for a connection that is just closed."""
    with socket.create_connection(("127.0.0.1", engine.port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(65536):
            found += part
    return found


def goes_on(engine: Running) -> None:
    assert engine.ready()
    assert engine.process.poll() is None
    assert "a request failed" not in engine.log.read_text(), "an error that nobody foresaw"


@QUIET
@given(body=bodies, path=st.sampled_from(("/v1/completions", "/v1/chat/completions")), known=st.booleans())
def test_any_json_is_answered_or_refused(engine: Running, body: dict[str, object], path: str, known: bool) -> None:
    full = {**GOOD, "messages": [{"role": "user", "content": "x"}], **body} if known else body
    reply = engine.post(path, **full)
    assert reply.status_code in {200, 400, 404}, reply.text
    if reply.status_code != 200:
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    goes_on(engine)


@QUIET
@given(data=st.data())
def test_any_bytes_are_answered_or_the_connection_closed(engine: Running, data: st.DataObject) -> None:
    good = post(json.dumps(GOOD).encode())
    kind = data.draw(st.sampled_from(("flip", "cut", "noise", "twice")))
    place = data.draw(st.integers(0, len(good) - 1))
    if kind == "flip":
        request = good[:place] + bytes([good[place] ^ (1 << data.draw(st.integers(0, 7)))]) + good[place + 1 :]
    elif kind == "cut":
        request = good[:place]
    elif kind == "twice":
        request = good[:place] + good
    else:
        request = data.draw(st.binary(max_size=300))
    reply = sent(engine, request)
    assert reply == b"" or reply.startswith(b"HTTP/1."), reply[:80]
    goes_on(engine)
