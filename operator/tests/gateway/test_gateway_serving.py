"""A real gateway process before fake engines: hand-off, streaming, judging, aggregated serving."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from gateway_calls import MODEL, Answer, Connection, complete, completion, raw_request, request
from gateway_fakes import KV, Behaviour, FakeEngine, Seen, pod
from gateway_process import GatewayProcess, gateway, wait_until

PATHS = ["/v1/completions", "/v1/chat/completions"]


@dataclass
class Pair:
    prefill: FakeEngine
    decode: FakeEngine
    gateway: GatewayProcess


@pytest.fixture(scope="module")
def _pair() -> Iterator[Pair]:
    prefill, decode = FakeEngine(), FakeEngine()
    with gateway([pod(prefill, "prefill"), pod(decode, "decode")]) as process:
        yield Pair(prefill, decode, process)


@pytest.fixture
def pair(_pair: Pair) -> Pair:
    """One P/D pair for the whole module, well-behaved and without memories."""
    for engine in (_pair.prefill, _pair.decode):
        engine.behave = Behaviour()
        engine.seen.clear()
    wait_until(_pair.gateway.ready)
    return _pair


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_prefill_then_decode(pair: Pair, path: str, stream: bool) -> None:
    answer = complete(pair.gateway.port, path, stream=stream, max_tokens=4)
    assert (answer.status, answer.text) == (200, " t0 t1 t2 t3")
    (prefill,), (decode,) = pair.prefill.calls(), pair.decode.calls()
    assert prefill.path == decode.path == path
    assert (prefill.body["max_tokens"], prefill.body["stream"]) == (1, False)
    assert decode.body["kv_transfer_params"] == KV, "verbatim"
    assert decode.body["max_tokens"] == 4
    assert prefill.headers["x-request-id"] == decode.headers["x-request-id"] == answer.headers["x-request-id"]


def test_f01_the_newer_limit_is_capped_for_prefill_and_survives_for_decode(pair: Pair) -> None:
    """llm-d/llm-d-router#400: with max_completion_tokens prefill generated the whole answer."""
    body = {"model": MODEL, "max_completion_tokens": 500, "messages": [{"role": "user", "content": "hi"}]}
    assert request(pair.gateway.port, "POST", PATHS[1], json.dumps(body).encode()).status == 200
    assert pair.prefill.calls()[0].body["max_completion_tokens"] == 1
    assert pair.prefill.calls()[0].body["max_tokens"] == 1
    decode = pair.decode.calls()[0].body
    assert decode["max_completion_tokens"] == 500
    assert "max_tokens" not in decode


def test_f03_two_choices_reach_decode_and_prefill_makes_one(pair: Pair) -> None:
    """ai-dynamo/dynamo#14098: n=2 never returned in P/D mode."""
    assert complete(pair.gateway.port, n=2).status == 200
    assert "n" not in pair.prefill.calls()[0].body
    assert pair.decode.calls()[0].body["n"] == 2


def test_f06_the_first_token_is_not_streamed_by_both_legs(pair: Pair) -> None:
    """NVIDIA/TensorRT-LLM#3427: the first generated token was returned twice in streaming."""
    assert complete(pair.gateway.port, stream=True).text == complete(pair.gateway.port).text


def test_f08_prefill_without_handoff_data_is_counted_and_decode_serves_the_request_whole(pair: Pair) -> None:
    """vllm-project/vllm#36308: the hand-off data exist only in non-streaming answers."""
    before = pair.gateway.metric("steelyard_gateway_handoffs_missing_total")
    pair.prefill.behave = Behaviour(kv=None)
    answer = complete(pair.gateway.port, stream=True, stream_options={"include_usage": True})
    assert answer.text == " t0 t1 t2 t3"
    assert "stream_options" not in pair.prefill.calls()[0].body
    assert "kv_transfer_params" not in pair.decode.calls()[0].body
    assert pair.gateway.metric("steelyard_gateway_handoffs_missing_total") == before + 1
    assert "without hand-off data" in pair.gateway.log()


@pytest.mark.parametrize("engine_usage", ["final", "every"])
@pytest.mark.parametrize("asked", [False, True])
def test_f10_usage_only_as_the_client_asked(pair: Pair, engine_usage: str, asked: bool) -> None:
    """mitchross/talos-argocd-proxmox#2019: running totals in each chunk, and a client that sums them."""
    pair.decode.behave = Behaviour(usage=engine_usage)
    before = pair.gateway.metric("steelyard_gateway_generated_tokens_total")
    options = {"stream_options": {"include_usage": True}} if asked else {}
    answer = complete(pair.gateway.port, stream=True, **options)
    usages = [u for e in answer.events if e != "[DONE]" and (u := json.loads(e).get("usage"))]
    assert [u["completion_tokens"] for u in usages] == ([4] if asked else [])
    assert answer.events[-1] == "[DONE]"
    assert pair.gateway.metric("steelyard_gateway_generated_tokens_total") == before + 4, "the last value, not the sum"


@pytest.mark.parametrize("engine_usage", ["none", "partial"])
def test_f11_streams_without_usable_usage_end_well(pair: Pair, engine_usage: str) -> None:
    """ai-dynamo/dynamo#11062: a chunk without usage metadata raised an exception in mid-stream."""
    pair.decode.behave = Behaviour(usage=engine_usage)
    answer = complete(pair.gateway.port, stream=True)
    assert (answer.text, answer.events[-1]) == (" t0 t1 t2 t3", "[DONE]")


@pytest.mark.parametrize("split", [1, 7])
def test_events_cut_anywhere_arrive_whole(pair: Pair, split: int) -> None:
    pair.decode.behave = Behaviour(split=split, tokens=2)
    assert complete(pair.gateway.port, stream=True).text == " t0 t1"


def test_each_token_is_passed_on_when_it_comes(pair: Pair) -> None:
    pair.decode.behave = Behaviour(tokens=3, interval=0.15)
    connection = Connection(pair.gateway.port)
    connection.send(raw_request("POST", PATHS[0], completion(stream=True)))
    connection.head()
    connection.line()
    assert b" t0" in connection.line()
    assert not pair.decode.calls()[0].finished, "the engine was still at work when its first token was here"
    connection.close()


def test_streaming_to_http_1_0_ends_by_closing(pair: Pair) -> None:
    connection = Connection(pair.gateway.port)
    connection.send(raw_request("POST", PATHS[0], completion(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0"))
    answer = connection.answer()
    assert "transfer-encoding" not in answer.headers
    assert answer.text == " t0 t1 t2 t3"


def test_connections_are_kept_on_both_sides(pair: Pair) -> None:
    complete(pair.gateway.port)
    before = pair.prefill.connections + pair.decode.connections
    connection = Connection(pair.gateway.port)
    for i in range(20):
        connection.send(raw_request("POST", PATHS[0], completion(stream=i % 2 == 0)))
        assert connection.answer().text == " t0 t1 t2 t3"
    assert pair.prefill.connections + pair.decode.connections == before
    connection.close()


def test_requests_sent_ahead_are_answered_in_order(pair: Pair) -> None:
    pair.decode.behave = lambda engine, seen: Behaviour(tokens=len(seen.body["prompt"]))
    connection = Connection(pair.gateway.port)
    sizes = [3, 1, 2, 5, 4, 1, 1, 1, 1, 1, 2, 7]
    connection.send(b"".join(raw_request("POST", PATHS[0], completion("x" * n, stream=n % 2 == 0)) for n in sizes))
    assert [connection.answer().text.count("t") for _ in sizes] == sizes
    connection.close()


def test_an_engines_refusal_reaches_the_client_and_does_not_count(pair: Pair) -> None:
    before = pair.gateway.metric("steelyard_gateway_requests_total", outcome="invalid", ttft_met="none")
    pair.prefill.behave = Behaviour(status=400)
    answer = complete(pair.gateway.port)
    assert (answer.status, answer.json["error"]["message"]) == (400, "engine says 400")
    assert pair.gateway.metric("steelyard_gateway_requests_total", outcome="invalid", ttft_met="none") == before + 1
    assert not pair.decode.calls()


def test_models_are_listed_from_the_settings(pair: Pair) -> None:
    answer = request(pair.gateway.port, "GET", "/v1/models")
    assert [m["id"] for m in answer.json["data"]] == [MODEL]


def test_what_it_measured(pair: Pair) -> None:
    """Every request that arrived ended in one way; figures come from engines' usage."""
    pair.prefill.behave = Behaviour(prompt_tokens=300, cached_tokens=100)
    labels = {"outcome": "completed", "ttft_met": "true", "tpot_met": "true", "length_class": "256-1023"}
    names = ("ttft_seconds_count", "tpot_seconds_count", "e2e_seconds_count", "handoff_seconds_count")
    before = {name: pair.gateway.metric("steelyard_gateway_" + name) for name in names}
    assert complete(pair.gateway.port, stream=True).status == 200
    assert pair.gateway.metric("steelyard_gateway_requests_total", **labels) == 1
    for name in names:
        assert pair.gateway.metric("steelyard_gateway_" + name) == before[name] + 1, name
    ended = pair.gateway.metric("steelyard_gateway_requests_total")
    assert pair.gateway.metric("steelyard_gateway_arrived_total") == ended
    for gauge in ("outstanding_tokens", "queued_tokens", "queued_requests", "engine_calls"):
        assert pair.gateway.metric("steelyard_gateway_" + gauge) == 0, gauge


def test_demand_shows_the_uncached_tokens_of_each_quarter_second(pair: Pair) -> None:
    pair.prefill.behave = Behaviour(prompt_tokens=500, cached_tokens=200)

    def demand() -> Any:
        return json.loads(pair.gateway.admin("/demand")[1])

    arrived_until = demand()["end"]
    wait_until(lambda: demand()["end"] >= arrived_until + 0.5)  # windows of earlier tests are complete
    before = sum(demand()["uncachedTokens"])
    assert complete(pair.gateway.port, prompt="demand").status == 200
    wait_until(lambda: sum(demand()["uncachedTokens"]) == pytest.approx(before + 300, abs=1))
    answer = demand()
    assert (answer["windowSeconds"], len(answer["uncachedTokens"]), answer["end"] % 0.25) == (0.25, 960, 0)


def test_aggregated_is_one_call_with_the_clients_own_body() -> None:
    engine = FakeEngine()
    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated"}) as process:
        answers: list[Answer] = [complete(process.port, stream=stream) for stream in (False, True)]
        assert [a.text for a in answers] == [" t0 t1 t2 t3"] * 2
        whole, streamed = (call.body for call in engine.calls())
        assert whole == {"model": MODEL, "prompt": "hello", "max_tokens": 4, "stream": False}
        assert streamed.pop("stream_options") == {"include_usage": True}
        assert streamed == {"model": MODEL, "prompt": "hello", "max_tokens": 4, "stream": True}
        assert process.metric("steelyard_gateway_requests_total", outcome="completed", ttft_met="true") == 2
        assert process.metric("steelyard_gateway_engines", role="aggregated") == 1


def test_one_prefill_at_a_time_until_its_cost_is_known_and_then_a_tenth_of_a_second_of_them() -> None:
    """Late binding: theta is 0 for the first 20 samples, then 100 ms of work; a prefill here takes about 20 ms."""
    prefill, decode = FakeEngine(), FakeEngine()
    running, most = [0], [0]

    def behave(engine: FakeEngine, seen: Seen) -> Behaviour:
        running[0] = sum(not s.finished for s in engine.calls())
        most[0] = max(most[0], running[0])
        return Behaviour(delay=0.02)

    prefill.behave = behave
    with gateway([pod(prefill, "prefill"), pod(decode, "decode")]) as process, ThreadPoolExecutor(12) as pool:
        assert {a.status for a in pool.map(lambda i: complete(process.port, prompt=str(i)), range(12))} == {200}
        assert most[0] == 1
        for i in range(20):
            complete(process.port, prompt=str(i))
        assert {a.status for a in pool.map(lambda i: complete(process.port, prompt=str(i)), range(36))} == {200}
        assert 2 <= most[0] <= 8


def test_no_more_is_prefilled_than_decode_can_take_soon() -> None:
    """Finished KV is kept for a lease only; with decode full, further requests wait unprefilled."""
    prefill, decode = FakeEngine(), FakeEngine()
    decode.behave = lambda engine, seen: Behaviour(delay=1.0)
    pods = [pod(prefill, "prefill"), pod(decode, "decode")]
    with gateway(pods, {"decodeSlots": 2}) as process, ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(complete, process.port, prompt=str(i)) for i in range(12)]
        wait_until(lambda: process.metric("steelyard_gateway_queued_requests", role="prefill") >= 7)
        wait_until(lambda: len(decode.calls()) >= 4)
        assert len(prefill.calls()) <= len(decode.calls()) + 3
        assert {f.result().status for f in futures} == {200}
