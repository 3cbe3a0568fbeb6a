"""A simulated engine as a process: streams, stop strings, the cache, KV pressure, metrics, errors, and logs."""

import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from conftest import PROMPT, Running, Start, hand_off


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
