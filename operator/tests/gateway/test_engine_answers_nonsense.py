"""What clients see, and what is counted, when an engine answers something that is no answer.

A raw server stands in for the engine, so that every byte of its HTTP is the test's.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from gateway_calls import complete
from gateway_process import GatewayProcess, gateway, wait_until

WHOLE = b'{"choices":[{"text":"a"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
TOKEN, DONE = b'data: {"choices":[{"text":"a"}]}\n\n', b"data: [DONE]\n\n"
HUGE = b"1" + b"0" * 400


class RawEngine:
    """Answers every POST with the bytes of `reply` and every GET (a probe) with 200."""

    def __init__(self) -> None:
        self.reply = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as file:
            while first := file.readline():
                length = 0
                while line := file.readline().strip().lower():
                    length = int(line.partition(b":")[2]) if line.startswith(b"content-length:") else length
                file.read(length)
                connection.sendall(
                    self.reply if first.startswith(b"POST") else b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
                )


def whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def stream(*events: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"


def usage(prompt: bytes, answer: bytes) -> bytes:
    return b'{"choices":[],"usage":{"prompt_tokens":%b,"completion_tokens":%b}}' % (prompt, answer)


@pytest.fixture(scope="module")
def nonsense() -> Iterator[tuple[RawEngine, GatewayProcess]]:
    engine = RawEngine()
    pods = [{"name": "a", "address": "127.0.0.1", "port": engine.port, "role": "aggregated"}]
    with gateway(pods, {"topology": "Aggregated"}) as process:
        yield engine, process


REPLIES = [
    ("an announcement before the answer", whole(b"", b"103 Early Hints") + whole(WHOLE), False, 200),
    ("a change of protocol", b"HTTP/1.1 101 X\r\nupgrade: a\r\nconnection: upgrade\r\n\r\nabc", False, 502),
    ("another answer behind the answer", whole(WHOLE) + whole(b'{"choices":[],"of":"another"}'), False, 502),
    ("the beginning of something behind the answer", whole(WHOLE) + b"H", False, 502),
    ("a length that is too short", whole(WHOLE).replace(b"length: 7", b"length: "), False, 502),
    ("a status that is no error and no answer", whole(b"", b"302 Found\r\nlocation: http://elsewhere"), False, 502),
    ("a status that no body may follow", b"HTTP/1.1 204 No Content\r\n\r\n", False, 502),
    ("a status that does not exist", whole(WHOLE, b"000 X"), False, 502),
    ("an error under 200", whole(b'{"error":{"message":"no"}}'), False, 502),
    ("no JSON under 200", whole(b"\xff\xfe<html>"), False, 502),
    ("nothing under 200", whole(b""), False, 502),
    ("no JSON under 200 to a stream", whole(b"<html>"), True, 502),
    ("usage beyond all numbers", whole(usage(HUGE, HUGE)), False, 200),
    ("usage below zero", whole(usage(b"-5", b"-1000")), False, 200),
    ("usage of other types", whole(usage(b'"3"', b"1.5")), False, 200),
    ("usage beyond all numbers in a stream", stream(TOKEN, b"data: " + usage(HUGE, HUGE) + b"\n\n", DONE), True, 200),
    ("usage below zero in a stream", stream(TOKEN, b"data: " + usage(b"-3", b"-4") + b"\n\n", DONE), True, 200),
    ("a comment behind the end of a stream", stream(TOKEN, DONE + b": bye\n\n"), True, 200),
    ("a stream without events", stream(), True, 502),
]


@pytest.mark.parametrize(("reply", "streamed", "status"), [case[1:] for case in REPLIES], ids=[c[0] for c in REPLIES])
def test_nonsense_is_one_clean_answer_counted_once(
    nonsense: tuple[RawEngine, GatewayProcess], reply: bytes, streamed: bool, status: int
) -> None:
    engine, process = nonsense
    wait_until(process.ready)
    counted = {
        name: process.metric("steelyard_gateway_requests_total", outcome=name) for name in ("completed", "failed")
    }
    tokens = process.metric("steelyard_gateway_generated_tokens_total")
    engine.reply = reply
    answer = complete(process.port, stream=streamed)
    assert (answer.status, answer.complete) == (status, True)
    assert b"another" not in answer.body
    assert (b"[DONE]" in answer.body) == (streamed and status == 200)
    counted["completed" if status == 200 else "failed"] += 1
    for outcome, count in counted.items():
        assert process.metric("steelyard_gateway_requests_total", outcome=outcome) == count
    assert process.metric("steelyard_gateway_generated_tokens_total") >= tokens, "a counter only rises"
    for gauge in ("outstanding_tokens", "queued_requests", "engine_calls"):
        assert process.metric(f"steelyard_gateway_{gauge}") == 0
    assert "Traceback" not in process.log()
    wait_until(process.ready)
    engine.reply = whole(WHOLE)
    assert complete(process.port).body == WHOLE, "the next answer is its own"
