"""What the front door refuses, and how: sizes, times, methods, keys, too many at once."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from gateway_calls import Connection, complete, completion, raw_request, request
from gateway_fakes import Behaviour, FakeEngine, pod
from gateway_process import GatewayProcess, gateway, wait_until

PATH = "/v1/completions"
LIMIT = 100_000


@pytest.fixture(scope="module")
def door() -> Iterator[GatewayProcess]:
    engine = FakeEngine()
    settings = {"topology": "Aggregated", "limits": {"concurrent": 100, "bodyBytes": LIMIT}}
    with gateway([pod(engine, "aggregated")], settings) as process:
        wait_until(process.ready)
        yield process


def raw(port: int, data: bytes) -> tuple[int, dict[str, str], bytes]:
    connection = Connection(port)
    connection.send(data)
    answer = connection.answer()
    return answer.status, answer.headers, answer.body


BODY = completion()
NOT_SERVED = [
    "/tokenize", "/score", "/pooling", "/metrics", "/health", "/invocations", "/v2/embed", "//v1/chat/completions",
    "/v1/../invocations", "/V1/chat/completions", "/v1/completions/", "/v1/completions%20", "http://x/v1/completions",
]  # fmt: skip


@pytest.mark.parametrize(
    ("because", "data", "status", "message"),
    [
        ("not HTTP", b"\x00\x01garbage\r\n\r\n", 400, "not valid HTTP"),
        ("HTTP/2 without asking", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "not valid HTTP"),
        (
            "two framings of one body",
            raw_request("POST", PATH, None, content_length="5", transfer_encoding="chunked") + b"0\r\n\r\n",
            400,
            "not valid",
        ),
        ("a body of unknown length", raw_request("POST", PATH), 411, "Content-Length"),
        ("a body announced too large", raw_request("POST", PATH, content_length=str(LIMIT + 1)), 413, str(LIMIT)),
        ("a body that is too large", raw_request("POST", PATH, b"x" * (LIMIT + 1)), 413, str(LIMIT)),
        ("a head that is too large", raw_request("POST", PATH, b"", x=("y" * 40_000)), 431, "32768"),
        ("a target that is too large", raw_request("GET", "/" + "y" * 40_000), 431, "32768"),
        ("the wrong method", raw_request("GET", PATH), 405, "POST"),
        ("another method", raw_request("DELETE", "/v1/models"), 405, "GET"),
        ("not JSON", raw_request("POST", PATH, b"{"), 400, "JSON"),
        (
            "an unknown model",
            raw_request("POST", PATH, b'{"model":"gpt-9","prompt":"x"}'),
            404,
            "'gpt-9' does not exist",
        ),
        ("an unknown path", raw_request("GET", "/"), 404, "no such path"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_refusals_in_openais_shape(door: GatewayProcess, because: str, data: bytes, status: int, message: str) -> None:
    got, headers, body = raw(door.port, data)
    error = json.loads(body)["error"]
    assert (got, set(error)) == (status, {"message", "type", "param", "code"}), because
    assert message in error["message"]
    assert headers["content-type"] == "application/json"
    if status == 405:
        assert headers["allow"] in ("GET", "POST")


def test_nothing_follows_an_answer_to_head(door: GatewayProcess) -> None:
    connection = Connection(door.port)
    connection.send(raw_request("HEAD", "/v1/models"))
    status, headers = connection.head()
    assert (status, headers["connection"]) == (405, "close")


def test_an_unknown_model_has_openais_code(door: GatewayProcess) -> None:
    answer = request(door.port, "POST", PATH, b'{"model":"gpt-9","prompt":"x"}')
    assert (answer.json["error"]["code"], answer.json["error"]["param"]) == ("model_not_found", "model")


def test_a_refused_upload_still_sees_its_answer(door: GatewayProcess) -> None:
    """Closing with unread bytes would reset the connection and destroy the 413 on its way."""
    connection = Connection(door.port)
    connection.send(raw_request("POST", PATH, content_length=str(50_000_000)))
    for _ in range(30):
        connection.send(b"x" * 100_000)
    assert connection.answer().status == 413


def test_an_error_does_not_end_a_connection_that_is_in_order(door: GatewayProcess) -> None:
    connection = Connection(door.port)
    connection.send(raw_request("POST", PATH, b"{") + raw_request("POST", PATH, BODY))
    assert [connection.answer().status for _ in range(2)] == [400, 200]


@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_a_chunked_request_body(door: GatewayProcess, pause: float) -> None:
    parts = [b"%x\r\n%b\r\n" % (len(BODY[i : i + 7]), BODY[i : i + 7]) for i in range(0, len(BODY), 7)]
    connection = Connection(door.port)
    connection.send(raw_request("POST", PATH, transfer_encoding="chunked"))
    for part in [*parts, b"0\r\n\r\n"]:
        connection.send(part)
        time.sleep(pause)
    assert connection.answer().status == 200


def test_a_chunked_body_is_bounded_too(door: GatewayProcess) -> None:
    connection = Connection(door.port)
    connection.send(raw_request("POST", PATH, transfer_encoding="chunked"))
    connection.send((b"4000\r\n" + b"x" * 0x4000 + b"\r\n") * 8)
    assert connection.answer().status == 413


def test_expect_is_answered_only_where_the_body_will_be_taken(door: GatewayProcess) -> None:
    connection = Connection(door.port)
    connection.send(raw_request("POST", PATH, content_length=str(len(BODY)), expect="100-continue"))
    assert connection.head()[0] == 100
    connection.send(BODY)
    assert connection.answer().status == 200
    connection = Connection(door.port)
    connection.send(raw_request("POST", PATH, content_length=str(LIMIT * 2), expect="100-continue"))
    assert connection.head()[0] == 413


def test_a_client_may_ask_for_the_end_of_its_connection(door: GatewayProcess) -> None:
    connection = Connection(door.port)
    connection.send(raw_request("POST", PATH, BODY, connection="close"))
    assert connection.answer().headers["connection"] == "close"
    assert connection.closed()


@pytest.mark.parametrize(("given", "kept"), [("abc-1.2:3", True), ("bad id", False), ("x" * 300, False)])
def test_a_request_id_is_kept_if_it_is_harmless(door: GatewayProcess, given: str, kept: bool) -> None:
    answer = request(door.port, "GET", "/v1/models", x_request_id=given)
    assert (answer.headers["x-request-id"] == given) is kept


def test_more_than_the_limit_at_once_are_told_to_come_back() -> None:
    engine = FakeEngine(Behaviour(delay=1.0))
    settings = {"topology": "Aggregated", "limits": {"concurrent": 3}}
    with gateway([pod(engine, "aggregated")], settings) as process, ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda i: complete(process.port, prompt=str(i)), range(10)))
        assert sorted(a.status for a in answers) == [200] * 3 + [429] * 7
        refused = next(a for a in answers if a.status == 429)
        assert refused.headers["retry-after"] == "1"
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert process.metric("steelyard_gateway_requests_total", outcome="refused", ttft_met="false") == 7
        assert process.metric("steelyard_gateway_arrived_total") == 10


def test_e06_probes_answer_while_the_service_is_full() -> None:
    """vllm-project/production-stack#448: under load the router's own probe failed and it was restarted."""
    engine = FakeEngine(Behaviour(tokens=1000, interval=0.05))
    settings = {"topology": "Aggregated", "limits": {"concurrent": 50}, "decodeSlots": 1000}
    with gateway([pod(engine, "aggregated")], settings) as process:
        connections = [Connection(process.port) for _ in range(200)]
        for connection in connections:
            connection.send(raw_request("POST", PATH, completion(stream=True)))
        wait_until(lambda: process.metric("steelyard_gateway_requests_total", outcome="refused") == 150)
        assert process.admin("/live")[0] == process.admin("/ready")[0] == 200
        for connection in connections:
            connection.close()
        wait_until(lambda: process.metric("steelyard_gateway_requests_total", outcome="cancelled") == 50)


def test_shedding_refuses_newcomers_when_the_late_pile_up() -> None:
    engine = FakeEngine(Behaviour(delay=0.5))
    settings = {
        "topology": "Aggregated",
        "objectives": {"ttftSeconds": 0.02, "tpotSeconds": None},
        "handoffSeconds": 0.0,
        "prefillPrior": {"a": 0.1, "b": 0.0, "c": 0.0},
        "limits": {"shedWhenLate": True},
    }
    with gateway([pod(engine, "aggregated")], settings) as process, ThreadPoolExecutor(12) as pool:
        first = [pool.submit(complete, process.port, prompt=str(i), stream=True) for i in range(8)]
        wait_until(lambda: process.metric("steelyard_gateway_late_requests") >= 4)
        refused = complete(process.port)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert [f.result().status for f in first] == [200] * 8, "who was in line is served"
        assert complete(process.port).status == 200, "and so is who comes later"


def test_g01_g02_g03_no_path_without_a_key(tmp_path_factory: pytest.TempPathFactory) -> None:
    """vllm-project/vllm#18892, #58144, #42591: routes outside the guarded prefix answered without a key."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("# rotation: old and new\nsk-old\n\nsk-new\n")
    engine = FakeEngine()
    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated", "apiKeysFile": str(keys)}) as process:
        wait_until(process.ready)
        for path in NOT_SERVED:
            assert request(process.port, "POST", path, BODY).status == 404, path
            assert request(process.port, "POST", path, BODY, authorization="Bearer sk-new").status == 404, path
        wrong = ("sk-new", "Bearer sk-ne", "Bearer ", "Bearer # rotation: old and new", "Basic sk-new")
        for header in ({}, *({"authorization": value} for value in wrong)):
            for method, path in (("POST", PATH), ("POST", "/v1/chat/completions"), ("GET", "/v1/models")):
                answer = request(process.port, method, path, BODY, **header)
                assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key"), (header, path)
                assert answer.headers["www-authenticate"] == "Bearer"
        assert not engine.calls()
        for key in ("sk-old", "sk-new"):
            assert request(process.port, "POST", PATH, BODY, authorization=f"bearer {key}").status == 200
        assert all("authorization" not in seen.headers for seen in engine.calls()), "clients' keys stay here"
        keys.write_text("sk-newer\n")
        wait_until(lambda: request(process.port, "GET", "/v1/models", authorization="Bearer sk-newer").status == 200)
        assert request(process.port, "GET", "/v1/models", authorization="Bearer sk-old").status == 401


def test_g09_no_prompt_in_any_log() -> None:
    """vllm-project/vllm#1240: prompts were written to the log by default."""
    marker = "MARKER-7f3a secret"
    engine = FakeEngine()
    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated"}) as process:
        for behave in (
            Behaviour(),
            Behaviour(status=400),
            Behaviour(status=503),
            Behaviour(die_after=0),
            Behaviour(die_after=2),
        ):
            engine.behave = behave
            wait_until(process.ready)
            complete(process.port, "/v1/chat/completions", messages=[{"role": "user", "content": marker}], stream=True)
            wait_until(process.ready)
            complete(process.port, prompt=marker, n=marker)
            request(process.port, "POST", PATH, b'{"model":"m","prompt":"' + marker.encode() + b'", broken')
        assert "leg repeated" in process.log(), "the log is not silent"
        assert "MARKER" not in process.log()
