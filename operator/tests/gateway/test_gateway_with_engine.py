"""Gateways and real engine processes (simulated backend) over loopback."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from gateway_calls import Connection, raw_request
from gateway_engines import MODEL, SETTINGS, Engine, ask, listed, outcome
from gateway_process import GatewayProcess, gateway, wait_until


@pytest.fixture(scope="module")
def _running() -> Iterator[dict[str, Engine]]:
    started: dict[str, Engine] = {}
    yield started
    for engine in started.values():
        engine.stop()


@pytest.fixture
def engines(_running: dict[str, Engine]) -> list[Engine]:
    """Two prefill and two decode engines, alive and idle; those that a test has ended are started anew."""
    for name in ("p0", "p1", "d0", "d1"):
        if name not in _running or _running[name].process.poll() is not None:
            _running[name] = Engine(name)
    for engine in _running.values():
        wait_until(engine.up, seconds=60)
        wait_until(lambda engine=engine: engine.metric("vllm:num_requests_running") == 0)
    return list(_running.values())


def test_handoff_streams_and_judges(engines: list[Engine]) -> None:
    with (
        gateway(listed(engines), SETTINGS) as process,
        gateway([engines[0].pod("aggregated")], {**SETTINGS, "topology": "Aggregated"}) as whole,
    ):
        for path in ("/v1/completions", "/v1/chat/completions"):
            for fields in (
                {},
                {"stream": True},
                {"max_tokens": 1},
                {"stream": True, "stream_options": {"include_usage": True}},
            ):
                answer, aggregated = ask(process, path, **fields), ask(whole, path, **fields)
                assert (answer.status, answer.text) == (200, aggregated.text), (path, fields)
                if fields.get("stream"):
                    assert answer.events[-1] == "[DONE]"
                usage = [u for e in answer.events if e != "[DONE]" and (u := json.loads(e).get("usage"))]
                assert bool(usage) == ("stream_options" in fields)
        assert outcome(process, "completed") == 8
        assert process.metric("steelyard_gateway_handoffs_missing_total") == 0
        computed = sum(e.metric("vllm:prompt_tokens_by_source_total", source="local_compute") for e in engines[2:])
        fetched = sum(
            e.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer") for e in engines[2:]
        )
        assert fetched > 0
        assert computed <= 8, "decode computes at most one token of each prompt anew"


def test_an_engine_killed_in_mid_stream_ends_in_an_error_and_others_go_on(engines: list[Engine]) -> None:
    with gateway(listed(engines), SETTINGS) as process:
        streams = [Connection(process.port) for _ in range(6)]
        body = json.dumps(
            {"model": MODEL, "prompt": "x", "max_tokens": 400, "stream": True, "ignore_eos": True}
        ).encode()
        for stream in streams:
            stream.send(raw_request("POST", "/v1/completions", body))
            assert stream.head()[0] == 200
        hit = engines[2].metric("vllm:num_requests_running")
        assert 0 < hit < 6
        engines[2].kill()
        ends = [stream.answer_body() for stream in streams]
        broken = [end for end in ends if b"engine_failed" in end]
        assert len(broken) == hit
        assert all(end.rstrip().endswith(b"data: [DONE]") for end in ends if end not in broken)
        assert (outcome(process, "failed"), outcome(process, "completed")) == (hit, 6 - hit)
        assert all(ask(process, prompt=f"after {i}").status == 200 for i in range(6))


def test_dead_engines_cost_no_request(engines: list[Engine]) -> None:
    with gateway(listed(engines), SETTINGS) as process, ThreadPoolExecutor(4) as pool:
        killed = threading.Event()

        def client(number: int) -> list[int]:
            return [ask(process, prompt=f"{number}-{i}", max_tokens=3).status for i in range(25)]

        futures = [pool.submit(client, number) for number in range(4)]
        wait_until(lambda: outcome(process, "completed") > 10)
        engines[1].kill()
        engines[3].kill()
        killed.set()
        statuses = [status for future in futures for status in future.result()]
        assert statuses == [200] * 100
        assert process.metric("steelyard_gateway_arrived_total") == outcome(process, "completed") == 100


def test_a_client_that_leaves_frees_its_slot(engines: list[Engine]) -> None:
    with gateway(listed(engines), SETTINGS) as process:
        body = json.dumps(
            {"model": MODEL, "prompt": "x", "max_tokens": 4000, "stream": True, "ignore_eos": True}
        ).encode()  # would take 16 s
        connection = Connection(process.port)
        connection.send(raw_request("POST", "/v1/completions", body))
        connection.head()
        assert sum(e.metric("vllm:num_requests_running") for e in engines[2:]) == 1
        connection.close()
        wait_until(lambda: sum(e.metric("vllm:num_requests_running") for e in engines[2:]) == 0, seconds=8)
        wait_until(lambda: outcome(process, "cancelled") == 1)


def test_a_client_that_leaves_between_the_calls_frees_its_kv(engines: list[Engine]) -> None:
    """The lease would keep it for 30 s."""
    prefill, decode = engines[0], engines[2]
    expired = prefill.metric("steelyard_engine_kv_expired_total")
    with gateway([prefill.pod("prefill"), decode.pod("decode")], {**SETTINGS, "decodeSlots": 1}) as process:
        body = json.dumps(
            {"model": MODEL, "prompt": "x", "max_tokens": 4000, "stream": True, "ignore_eos": True}
        ).encode()
        first, second = Connection(process.port), Connection(process.port)
        first.send(raw_request("POST", "/v1/completions", body))
        assert first.head()[0] == 200, "the one decode slot is taken"
        wait_until(lambda: prefill.metric("steelyard_engine_kv_held") == 0)
        second.send(raw_request("POST", "/v1/completions", body))
        wait_until(lambda: prefill.metric("steelyard_engine_kv_held") == 1)
        second.close()
        wait_until(lambda: prefill.metric("steelyard_engine_kv_held") == 0, seconds=15)
        assert process.metric("steelyard_gateway_kv_given_up_total") == 1
        assert prefill.metric("steelyard_engine_kv_expired_total") == expired
        assert prefill.metric("vllm:kv_cache_usage_perc") == 0
        first.close()


def test_roles_change_under_two_gateways_without_a_lost_request(engines: list[Engine]) -> None:
    with (
        gateway(listed(engines), {**SETTINGS, "gateways": 2}) as one,
        gateway(listed(engines), {**SETTINGS, "gateways": 2}) as two,
    ):
        stop = threading.Event()

        def client(process: GatewayProcess) -> list[tuple[int, int]]:
            seen = []
            while not stop.is_set():
                answer = ask(process, stream=True, max_tokens=10, ignore_eos=True)
                seen.append((answer.status, answer.events.count("[DONE]")))
            return seen

        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(client, process) for process in (one, two, one, two)]
            for roles in ("PPPD", "PDPD", "DDPD", "PPDD"):
                for process in (one, two):
                    process.write_pods(listed(engines, roles))
                    wait_until(lambda: process.metric("steelyard_gateway_engines", role="prefill") == roles.count("P"))  # noqa: B023
                threading.Event().wait(0.3)
            stop.set()
            seen = [item for future in futures for item in future.result()]
        assert set(seen) == {(200, 1)}
        assert outcome(one, "completed") + outcome(two, "completed") == len(seen) > 20


def test_an_engine_that_drains_loses_nothing(engines: list[Engine]) -> None:
    """E08: leaving the gateway comes first (the pod is not ready), its streams finish, SIGTERM follows."""
    with gateway(listed(engines), SETTINGS) as process:
        body = json.dumps(
            {"model": MODEL, "prompt": "x", "max_tokens": 200, "stream": True, "ignore_eos": True}
        ).encode()
        streams = [Connection(process.port) for _ in range(4)]
        for stream in streams:
            stream.send(raw_request("POST", "/v1/completions", body))
            stream.head()
        pods = listed(engines)
        pods[2]["ready"] = False
        process.write_pods(pods)
        wait_until(lambda: process.metric("steelyard_gateway_engines", role="decode") == 1)
        engines[2].process.terminate()
        assert all(stream.answer_body().rstrip().endswith(b"[DONE]") for stream in streams)
        assert all(ask(process, prompt=str(i)).status == 200 for i in range(4))
        assert outcome(process, "failed") == 0
