"""A simulated engine as a process: its start, wrong flags, draining, its end, and clients that leave."""

import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from conftest import PROMPT, Running, Start, hand_off, wait_until

SLOW = {"decode": {"g0": 0.02}}


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


def test_an_interrupt_ends_an_idle_engine_at_once(start_simulated: Start):
    engine = start_simulated()
    engine.process.send_signal(signal.SIGINT)
    assert engine.exit_status() == 0


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
