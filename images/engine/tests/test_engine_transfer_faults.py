"""A KV transfer that fails in every way there is: recompute gives the same text and counts, fail gives a clean error."""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from steelyard_engine.handoff import HandoffFailed, pack_header, unpack

from conftest import TLS, Running, Start, free_ports

PROMPT = "The hook carries what the scale has weighed, and the yard counts. " * 3
REMOTE_DECODE = {"do_remote_decode": True, "do_remote_prefill": False}
TOKENS = tuple(range(100, 140))
STATE = bytes(range(48))
BLOB = pack_header("model", "layout", TOKENS[:-1], STATE) + STATE


def test_the_blob_that_is_damaged_below_is_accepted_whole() -> None:
    assert bytes(unpack(BLOB, "model", "layout", TOKENS).take()) == STATE


def test_one_bit_flipped_anywhere_is_noticed() -> None:
    for place in range(len(BLOB) * 8):
        damaged = bytearray(BLOB)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(HandoffFailed):
            unpack(bytes(damaged), "model", "layout", TOKENS)


def test_a_state_that_was_cut_anywhere_is_noticed() -> None:
    for length in range(len(BLOB)):
        with pytest.raises(HandoffFailed):
            unpack(BLOB[:length], "model", "layout", TOKENS)


def answer(body: bytes, length: int | None = None, status: int = 200, more: str = "") -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status} Said\r\ncontent-length: {size}\r\n{more}\r\n".encode() + body


@dataclass(frozen=True)
class Fault:
    """What comes back when the state is fetched, what follows, and why the engine must notice."""

    given: str
    reply: Callable[[bytes], bytes]
    then: str  # close | reset | wait
    because: str

    def __str__(self) -> str:
        return self.given


def flipped(blob: bytes) -> bytes:
    middle = len(blob) // 2
    return blob[:middle] + bytes([blob[middle] ^ 4]) + blob[middle + 1 :]


FAULTS = (
    Fault("closed at once", lambda blob: b"", "close", "the pod was killed as it was asked"),
    Fault("reset at once", lambda blob: b"", "reset", "a middlebox refuses the connection after its beginning"),
    Fault("cut", lambda blob: answer(blob[:-7], len(blob)), "close", "the pod was killed as it answered"),
    Fault("reset half-way", lambda blob: answer(blob[:9], len(blob)), "reset", "the network broke as it answered"),
    Fault("shorter than said", lambda blob: answer(blob[:-7]), "close", "the length is right, the state is not"),
    Fault("longer than said", lambda blob: answer(blob + b"more"), "close", "bytes of something else follow"),
    Fault("a bit flipped", lambda blob: answer(flipped(blob)), "close", "TCP's checksum misses one of many"),
    Fault("empty", lambda blob: answer(b""), "close", "no state at all"),
    Fault("unknown", lambda blob: answer(b"{}", status=404), "close", "the lease is over or the pod another one"),
    Fault("an error", lambda blob: answer(b"{}", status=500), "close", "the pod is ill"),
    Fault("elsewhere", lambda blob: answer(b"", status=302, more="location: /live\r\n"), "close", "nobody is followed"),
    Fault("not HTTP", lambda blob: b"220 mail ready\r\n\r\n", "close", "the address is another program's by now"),
    Fault("silence", lambda blob: b"", "wait", "the pod stands still: its kernel accepts, nobody answers"),
    Fault("silence half-way", lambda blob: answer(blob[:-7], len(blob)), "wait", "the pod stops as it answers"),
)
QUICK = tuple(one for one in FAULTS if one.then != "wait")


class Tampering:
    """Stands before a prefill engine's KV port, on `port`, and answers as its fault says."""

    def __init__(self, kv_port: int) -> None:
        self.fault = FAULTS[0]
        self.fetched = 0
        self._kv_port = kv_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._waiting: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        head = connection.recv(65536)
        path = head.split(b" ")[1].decode()
        if not head.startswith(b"GET"):  # a release
            httpx.delete(f"http://127.0.0.1:{self._kv_port}{path}", verify=TLS)
            connection.sendall(answer(b"", status=204))
            connection.close()
            return
        self.fetched += 1
        blob = httpx.get(f"http://127.0.0.1:{self._kv_port}{path}", verify=TLS).content
        connection.sendall(self.fault.reply(blob))
        if self.fault.then == "wait":
            self._waiting.append(connection)
            return
        if self.fault.then == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    def close(self) -> None:
        self._listener.close()
        for connection in self._waiting:
            connection.close()


@pytest.fixture(scope="module")
def prefill(start_simulated: Start) -> Running:
    return start_simulated()


@pytest.fixture(scope="module")
def lenient(start_simulated: Start) -> Running:
    return start_simulated(on_kv_failure="recompute")


@pytest.fixture(scope="module")
def strict(start_simulated: Start) -> Running:
    return start_simulated(on_kv_failure="fail")


@pytest.fixture(scope="module")
def tampering(prefill: Running) -> Any:
    server = Tampering(prefill.kv_port)
    yield server
    server.close()


def hand_off(prefill: Running, port: int, prompt: str) -> dict[str, Any]:
    done = prefill.complete(prompt, max_tokens=1, kv_transfer_params=REMOTE_DECODE)
    return done["kv_transfer_params"] | {"remote_port": port}


@pytest.mark.parametrize(
    ("fault", "stream"), [(one, False) for one in FAULTS] + [(one, True) for one in QUICK], ids=str
)
def test_a_transfer_fails_and_the_engine_computes_the_prompt_itself(
    tampering: Tampering, prefill: Running, lenient: Running, fault: Fault, stream: bool
) -> None:
    prompt = f"{fault.given} {stream} {PROMPT}"
    tampering.fault = fault
    names = ("local_compute", "external_kv_transfer")
    before = [lenient.metric("vllm:prompt_tokens_by_source_total", source=name) for name in names]
    failures, fetched = lenient.metric("steelyard_engine_kv_transfer_failures_total"), tampering.fetched
    asked = {"prompt": prompt, "max_tokens": 6, "kv_transfer_params": hand_off(prefill, tampering.port, prompt)}
    if stream:
        events = lenient.events("/v1/completions", **asked)
        assert events[-1] == "[DONE]"
        text = "".join(event["choices"][0]["text"] for event in events[:-1])
    else:
        text = lenient.post("/v1/completions", **asked).json()["choices"][0]["text"]
    assert text == prefill.complete(prompt, max_tokens=6)["choices"][0]["text"], fault.because
    assert tampering.fetched > fetched, "the state was asked for"
    assert lenient.metric("steelyard_engine_kv_transfer_failures_total") == failures + 1
    after = [lenient.metric("vllm:prompt_tokens_by_source_total", source=name) for name in names]
    assert after[0] - before[0] == -(-len(prompt) // 4), "every token of the prompt was computed here"
    assert after[1] == before[1]
    if fault.then == "wait":
        assert "sent nothing for 5 s" in lenient.log.read_text(), "the request waits, so not for a whole lease"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", QUICK, ids=str)
def test_a_transfer_fails_and_the_client_gets_a_clean_error(
    tampering: Tampering, prefill: Running, strict: Running, fault: Fault, stream: bool
) -> None:
    prompt = f"{fault.given} {stream} {PROMPT}"
    tampering.fault = fault
    failures = strict.metric("steelyard_engine_kv_transfer_failures_total")
    params = hand_off(prefill, tampering.port, prompt)
    reply = strict.post("/v1/completions", prompt=prompt, max_tokens=6, stream=stream, kv_transfer_params=params)
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "kv_transfer"), fault.because
    assert "send the request again" in reply.json()["error"]["message"]
    assert strict.metric("steelyard_engine_kv_transfer_failures_total") == failures + 1
    assert strict.metric("vllm:kv_cache_usage_perc") == 0
    assert strict.metric("vllm:num_requests_waiting") == 0


def test_nobody_listens(prefill: Running, lenient: Running, strict: Running) -> None:
    params = hand_off(prefill, free_ports(1)[0], PROMPT)
    expected = prefill.complete(PROMPT, max_tokens=6)["choices"]
    assert lenient.complete(PROMPT, max_tokens=6, kv_transfer_params=params)["choices"] == expected
    reply = strict.post("/v1/completions", prompt=PROMPT, max_tokens=6, kv_transfer_params=params)
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "kv_transfer")
