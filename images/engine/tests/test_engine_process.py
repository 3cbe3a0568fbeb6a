"""A simulated engine as a process: hand-off, streams, leases, cancellation, draining, KV pressure, metrics."""

import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from conftest import TLS, Running, Start, wait_until

PROMPT = "Weights slide along the beam until both sides rest. " * 3
REMOTE_DECODE = {"do_remote_decode": True, "do_remote_prefill": False}
SLOW = {"decode": {"g0": 0.02}}


@pytest.fixture(scope="module")
def prefill(start_simulated: Start) -> Running:
    return start_simulated()


@pytest.fixture(scope="module")
def decode(start_simulated: Start) -> Running:
    return start_simulated()


def hand_off(prefill: Running, prompt: str = PROMPT) -> dict[str, Any]:
    answer = prefill.complete(prompt, max_tokens=1, stream=False, kv_transfer_params=REMOTE_DECODE)
    return answer["kv_transfer_params"]


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


def test_a_stream_tells_the_same_as_a_whole_answer(decode: Running):
    *events, usage, done = decode.events(
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=5,
        stream_options={"include_usage": True},
    )
    whole = decode.post("/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=5).json()
    assert done == "[DONE]"
    assert "".join(e["choices"][0]["delta"]["content"] for e in events) == whole["choices"][0]["message"]["content"]
    assert [e["choices"][0]["finish_reason"] for e in events] == [None] * 4 + ["length"]
    assert [e["choices"][0]["delta"].get("role") for e in events] == ["assistant"] + [None] * 4
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 5
    assert len({e["id"] for e in (*events, usage)}) == 1


def test_a_stream_without_usage_has_none(decode: Running):
    events = decode.events("/v1/completions", prompt="a", max_tokens=2)
    assert events[-1] == "[DONE]"
    assert all("usage" not in event for event in events[:-1])


def test_stop_strings_end_an_answer(decode: Running):
    whole = decode.complete(PROMPT, max_tokens=12)["choices"][0]["text"]
    stop = whole[8:12]
    answer = decode.complete(PROMPT, max_tokens=12, stop=stop)
    assert answer["choices"][0] | {"logprobs": None} == {
        "index": 0,
        "text": whole[: whole.index(stop)],
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert answer["usage"]["completion_tokens"] < 12


def test_a_repeated_prompt_is_found_in_the_cache(decode: Running):
    hits = decode.metric("vllm:prefix_cache_hits_total")
    prompt = "Never said before, and long enough to fill a block or two of the cache, which is what this is for."
    assert decode.complete(prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    cached = decode.complete(prompt)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == 16
    assert decode.metric("vllm:prefix_cache_hits_total") - hits == cached
    assert decode.metric("vllm:prompt_tokens_by_source_total", source="local_cache_hit") >= cached


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


def test_a_client_that_leaves_frees_slot_and_kv(start_simulated: Start):
    engine = start_simulated(SLOW, max_sequences=1)
    body = {"prompt": PROMPT, "max_tokens": 900, "stream": True}
    with httpx.stream("POST", engine.url + "/v1/completions", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert engine.metric("vllm:num_requests_running") == 1
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(engine.complete, "next please", max_tokens=2)
            wait_until(lambda: engine.metric("vllm:num_requests_waiting") == 1)
            answer.close()
            assert waiting.result()["usage"]["completion_tokens"] == 2
    assert engine.metric("vllm:kv_cache_usage_perc") == 0
    assert engine.metric("vllm:request_success_total", finished_reason="abort") == 1
    assert engine.metric("vllm:e2e_request_latency_seconds_count") == 1, "an aborted request has no latency"


def test_a_client_that_leaves_while_waiting_is_forgotten(start_simulated: Start):
    engine = start_simulated(SLOW, max_sequences=1)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(engine.complete, PROMPT, max_tokens=40)
        wait_until(lambda: engine.metric("vllm:num_requests_running") == 1)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(engine.url + "/v1/completions", json={"prompt": "never mind"}, timeout=0.1)
        wait_until(lambda: engine.metric("vllm:num_requests_waiting") == 0)
        assert running.result()["usage"]["completion_tokens"] == 40
    assert engine.metric("vllm:request_success_total", finished_reason="length") == 1


def test_draining_refuses_new_work_and_finishes_the_old(start_simulated: Start):
    engine = start_simulated(SLOW)
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(engine.events, "/v1/completions", prompt=PROMPT, max_tokens=60)
        wait_until(lambda: engine.metric("vllm:num_requests_running") == 1)
        engine.terminate()
        wait_until(lambda: not engine.ready())
        refused = engine.post("/v1/completions", prompt="more")
        assert refused.status_code == 503
        assert "another" in refused.json()["error"]["message"]
        assert httpx.get(engine.url + "/live").status_code == 200
        events = stream.result()
    assert events[-1] == "[DONE]"
    assert len(events) == 61
    assert engine.exit_status() == 0


def test_draining_waits_for_a_state_to_be_fetched(start_simulated: Start, decode: Running):
    prefill = start_simulated()
    params = hand_off(prefill)
    prefill.terminate()
    wait_until(lambda: not prefill.ready())
    transferred = decode.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer")
    decode.complete(PROMPT, max_tokens=2, kv_transfer_params=params)
    assert decode.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer") > transferred
    assert prefill.exit_status() == 0


def test_draining_ends_at_its_timeout(start_simulated: Start):
    engine = start_simulated(SLOW, drain_timeout=0.3)
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(engine.events, "/v1/completions", prompt=PROMPT, max_tokens=900)
        wait_until(lambda: engine.metric("vllm:num_requests_running") == 1)
        engine.terminate()
        with pytest.raises(httpx.TransportError):
            stream.result()
    assert engine.exit_status() == 0


def test_an_engine_lives_before_it_is_ready(start_simulated: Start):
    engine = start_simulated({"startupSeconds": 2.0}, wait=False)

    def status(path: str) -> int:
        try:
            return httpx.get(engine.url + path).status_code
        except httpx.TransportError:
            return 0

    wait_until(lambda: status("/live") == 200)
    assert status("/health") == 503
    assert engine.post("/v1/completions", prompt="early").status_code == 503
    wait_until(engine.ready)


@pytest.mark.parametrize("batching", ["chunked", "continuous", "static", "dynamic"])
def test_kv_pressure_preempts_and_everybody_still_gets_the_right_text(start_simulated: Start, batching: str):
    flags = {"kv_tokens": 160, "context_length": 80, "max_sequences": 4, "max_batch_tokens": 64}
    # Slow enough for all to arrive while the first one runs, however busy the machine is.
    engine = start_simulated(times={"decode": {"g0": 0.008}}, batching=batching, **flags)
    prompts = [f"{number} goes over the bridge and comes back again" for number in range(5)]
    alone = [engine.complete(prompt, max_tokens=60)["choices"] for prompt in prompts]
    with ThreadPoolExecutor(5) as pool:
        together = list(pool.map(lambda prompt: engine.complete(prompt, max_tokens=60)["choices"], prompts))
    assert together == alone
    assert engine.metric("vllm:num_preemptions_total") > 0
    assert engine.metric("vllm:kv_cache_usage_perc") == 0


def test_metrics_mean_what_they_say(start_simulated: Start):
    engine = start_simulated()
    lengths = [1, 2, 7]
    for length in lengths:
        engine.complete(f"{length} " + PROMPT, max_tokens=length)
    count = engine.metric
    assert count("vllm:time_to_first_token_seconds_count") == 3
    assert count("vllm:inter_token_latency_seconds_count") == sum(lengths) - 3
    assert count("vllm:request_time_per_output_token_seconds_count") == 2, "one token has no gap"
    assert count("vllm:generation_tokens_total") == sum(lengths)
    assert count("vllm:request_success_total", finished_reason="length") == 3
    whole, queue = count("vllm:e2e_request_latency_seconds_sum"), count("vllm:request_queue_time_seconds_sum")
    assert whole >= queue + count("vllm:request_inference_time_seconds_sum")
    parts = count("vllm:request_prefill_time_seconds_sum") + count("vllm:request_decode_time_seconds_sum")
    assert count("vllm:request_inference_time_seconds_sum") == pytest.approx(parts)
    assert count("vllm:inter_token_latency_seconds_sum") == pytest.approx(count("vllm:request_decode_time_seconds_sum"))
    assert count("vllm:time_to_first_token_seconds_sum") == pytest.approx(
        queue + count("vllm:request_prefill_time_seconds_sum")
    )
    assert count("vllm:cache_config_info", block_size="16", num_gpu_blocks="256") == 1
    assert count("vllm:prompt_tokens_total") == count("vllm:prompt_tokens_by_source_total")
    content_type = httpx.get(engine.url + "/metrics").headers["content-type"]
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    ("method", "path", "data", "status"),
    [
        ("POST", "/v1/completions", b"x" * (4 * 1024 * 1024 + 1), 413),
        ("POST", "/v1/completions", b"\xff", 400),
        ("GET", "/v1/completions", b"", 405),
        ("POST", "/v1/embeddings", b"{}", 404),
    ],
)
def test_every_error_has_the_same_shape(decode: Running, method: str, path: str, data: bytes, status: int):
    answer = httpx.request(method, decode.url + path, content=data)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_models_and_version(decode: Running):
    assert httpx.get(decode.url + "/v1/models").json()["data"][0]["id"] == "sim"
    assert httpx.get(decode.url + "/version").json()["layout"] == "simulated"


def test_logs_are_json_without_prompts(prefill: Running, decode: Running):
    decode.complete("UNMISTAKABLE", kv_transfer_params=hand_off(prefill, "UNMISTAKABLE PROMPT"))
    lines = decode.log.read_text().splitlines() + prefill.log.read_text().splitlines()
    assert lines
    assert all(httpx.Response(200, text=line).json()["message"] for line in lines)
    assert not any("UNMISTAKABLE" in line for line in lines)


@pytest.mark.parametrize(
    "data",
    [
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\nUNMISTAKABLE PROMPT\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nUNMISTAKABLE\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: 12\r\n\r\nUNMISTAKABLE",
    ],
    ids=["a body longer than said", "a body in no chunks", "a body in no gzip"],
)
def test_a_body_that_cannot_be_read_is_in_no_log(start_simulated: Start, data: bytes):
    """The HTTP parser's errors quote the bytes that it could not read."""
    engine = start_simulated()
    with socket.create_connection(("127.0.0.1", engine.port)) as connection, connection.makefile("rb") as file:
        connection.sendall(data)
        assert file.readline().split()[1] == b"400"
    assert engine.complete("a", max_tokens=1)["usage"]["completion_tokens"] == 1
    engine.terminate()
    assert engine.exit_status() == 0
    assert "UNMISTAKABLE" not in engine.log.read_text()


REFUSED = [
    ({"context_length": 5000}, 1, "--context-length 5000 does not fit the KV capacity of 4096 tokens"),
    ({"backend": "llama"}, 2, "--backend llama needs --model"),
    ({"max_sequences": 0}, 2, "0 is not a positive number"),
    ({"profile": "/nowhere.json"}, 1, "--profile /nowhere.json"),
]


@pytest.mark.parametrize(("flags", "status", "text"), REFUSED)
def test_a_wrong_start_says_why(start_simulated: Start, flags: dict[str, object], status: int, text: str):
    engine = start_simulated(wait=False, **flags)
    assert engine.exit_status() == status
    assert text in engine.log.read_text()


def test_an_engine_that_loads_is_not_waited_for(start_simulated: Start):
    """A pod that is deleted while it reads large weights would hold its node until it had read them all."""
    engine = start_simulated({"startupSeconds": 600.0}, wait=False)
    wait_until(lambda: "listening" in engine.log.read_text())
    engine.terminate()
    assert engine.exit_status() == 0
    assert "drained" in engine.log.read_text()


def test_an_interrupt_ends_an_idle_engine_at_once(start_simulated: Start):
    engine = start_simulated()
    engine.process.send_signal(signal.SIGINT)
    assert engine.exit_status() == 0
