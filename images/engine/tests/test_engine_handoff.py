"""Hand-off between simulated engines as processes: states that are fetched, given up, refused, and late."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from conftest import PROMPT, REMOTE_DECODE, TLS, Running, Start, hand_off, wait_until


def test_decode_continues_what_prefill_began(prefill: Running, decode: Running):
    first = prefill.complete(PROMPT, max_tokens=1, kv_transfer_params=REMOTE_DECODE)
    params, prompt_tokens = first["kv_transfer_params"], first["usage"]["prompt_tokens"]
    assert params["do_remote_prefill"] is True
    assert params["do_remote_decode"] is False
    assert params["remote_num_tokens"] == prompt_tokens - 1
    assert prefill.metric("steelyard_engine_kv_held") == 1
    whole = decode.complete(PROMPT, max_tokens=12, kv_transfer_params=params)
    assert whole["choices"] == prefill.complete(PROMPT, max_tokens=12)["choices"]
    assert whole["usage"]["completion_tokens"] == 12
    assert decode.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer") == prompt_tokens - 1
    assert decode.metric("vllm:prompt_tokens_by_source_total", source="local_compute") == 1
    moved = (prompt_tokens - 1) * 1000
    assert decode.metric("steelyard_engine_kv_transfer_bytes_total", direction="in") == moved
    assert prefill.metric("steelyard_engine_kv_transfer_bytes_total", direction="out") == moved
    wait_until(lambda: prefill.metric("steelyard_engine_kv_held") == 0)
    assert decode.metric("vllm:num_requests_running") == 0
    assert prefill.metric("vllm:kv_cache_usage_perc") == 0


def test_a_state_nobody_will_fetch_is_given_up_on_the_api_port(prefill: Running):
    handle = hand_off(prefill)["remote_request_id"]
    assert prefill.metric("steelyard_engine_kv_held") == 1
    assert httpx.get(f"{prefill.url}/kv/{handle}", verify=TLS).status_code == 405, "it is not given out there"
    assert httpx.delete(f"{prefill.url}/kv/{handle}", verify=TLS).status_code == 204
    wait_until(lambda: prefill.metric("steelyard_engine_kv_held") == 0)
    assert prefill.metric("vllm:kv_cache_usage_perc") == 0
    assert httpx.delete(f"{prefill.url}/kv/{handle}", verify=TLS).status_code == 204, (
        "told twice, or too late: no matter"
    )


def test_a_lease_ends_and_decode_recomputes(start_simulated: Start, decode: Running):
    prefill = start_simulated(kv_lease=0.2)
    params = hand_off(prefill)
    wait_until(lambda: prefill.metric("steelyard_engine_kv_held") == 0)
    assert prefill.metric("steelyard_engine_kv_expired_total") == 1
    assert prefill.metric("vllm:kv_cache_usage_perc") == 0
    failures = decode.metric("steelyard_engine_kv_transfer_failures_total")
    answer = decode.complete(PROMPT, max_tokens=6, kv_transfer_params=params)
    assert answer["choices"] == prefill.complete(PROMPT, max_tokens=6)["choices"]
    assert decode.metric("steelyard_engine_kv_transfer_failures_total") == failures + 1


def test_a_state_that_cannot_be_had_is_an_error_where_recomputing_is_not_wanted(
    start_simulated: Start, prefill: Running
):
    strict = start_simulated(on_kv_failure="fail")
    where = {"remote_host": "127.0.0.1", "remote_port": prefill.kv_port, "remote_request_id": "unknown"}
    params = {"do_remote_prefill": True} | where
    answer = strict.post("/v1/completions", prompt=PROMPT, stream=True, kv_transfer_params=params)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "kv_transfer"
    assert strict.metric("vllm:num_requests_waiting") == 0


def test_a_state_of_another_prompt_is_refused(prefill: Running, decode: Running):
    failures = decode.metric("steelyard_engine_kv_transfer_failures_total")
    other = PROMPT.replace("Weights", "Stories")
    answer = decode.complete(other, max_tokens=6, kv_transfer_params=hand_off(prefill))
    assert answer["choices"] == prefill.complete(other, max_tokens=6)["choices"]
    assert decode.metric("steelyard_engine_kv_transfer_failures_total") == failures + 1
    wait_until(lambda: prefill.metric("steelyard_engine_kv_held") == 0)


@pytest.fixture
def kv_server() -> Any:
    """Serve states from the test: a handler is given by setting `.give`."""
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        give: Callable[[], bytes] = staticmethod(lambda: b"")

        def do_GET(self) -> None:
            body = self.give()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_DELETE(self) -> None:
            released.set()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server, Handler, released
    server.shutdown()
    server.server_close()


def test_damaged_bytes_are_refused_and_released(kv_server: Any, prefill: Running, decode: Running):
    server, handler, released = kv_server
    params = hand_off(prefill)
    blob = httpx.get(f"http://127.0.0.1:{params['remote_port']}/kv/{params['remote_request_id']}").content
    handler.give = staticmethod(lambda: blob + b"x")
    failures = decode.metric("steelyard_engine_kv_transfer_failures_total")
    answer = decode.complete(PROMPT, max_tokens=3, kv_transfer_params=params | {"remote_port": server.server_port})
    assert answer["choices"] == prefill.complete(PROMPT, max_tokens=3)["choices"]
    assert decode.metric("steelyard_engine_kv_transfer_failures_total") == failures + 1
    assert released.wait(10)


def test_others_are_served_while_a_state_is_on_its_way(kv_server: Any, prefill: Running, decode: Running):
    server, handler, _ = kv_server
    arrived, served = threading.Event(), threading.Event()

    def give() -> bytes:
        arrived.set()
        assert served.wait(30)
        return b"too late to be of use"

    handler.give = staticmethod(give)
    params = hand_off(prefill) | {"remote_port": server.server_port}
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(decode.complete, PROMPT, max_tokens=2, kv_transfer_params=params)
        assert arrived.wait(30)
        assert decode.metric("vllm:num_requests_waiting") == 1
        assert decode.complete("something else", max_tokens=5)["usage"]["completion_tokens"] == 5
        assert not slow.done()
        served.set()
        assert slow.result()["usage"]["completion_tokens"] == 2
