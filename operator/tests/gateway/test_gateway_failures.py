"""What clients see when engines fail, stall, die or are not there, and what engines see when clients leave."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from gateway_calls import Connection, complete, completion, raw_request
from gateway_fakes import Behaviour, FakeEngine, Seen, pod
from gateway_process import GatewayProcess, gateway, wait_until


def ended(process: GatewayProcess, outcome: str) -> float:
    return process.metric("steelyard_gateway_requests_total", outcome=outcome)


def books_balance(process: GatewayProcess) -> bool:
    return process.metric("steelyard_gateway_arrived_total") == process.metric("steelyard_gateway_requests_total")


Four = tuple[list[FakeEngine], list[FakeEngine]]


@pytest.fixture
def four() -> Four:
    """Two prefill and two decode engines."""
    return [FakeEngine(), FakeEngine()], [FakeEngine(), FakeEngine()]


def pods(prefill: list[FakeEngine], decode: list[FakeEngine]) -> list[dict[str, object]]:
    return [pod(e, "prefill") for e in prefill] + [pod(e, "decode") for e in decode]


def test_e02_an_unreachable_pod_is_left_and_the_request_served_elsewhere(
    four: Four,
) -> None:
    """vllm-project/production-stack#420: a dead node kept getting its share."""
    prefill, decode = four
    with gateway(pods(prefill, decode)) as process:
        prefill[0].down()
        decode[0].down()
        for _ in range(6):
            assert complete(process.port).text == " t0 t1 t2 t3"
        assert len(prefill[1].calls()) == len(decode[1].calls()) == 6
        assert process.metric("steelyard_gateway_engines_set_aside_total", role="prefill") == 1, "once, not per request"
        prefill[0].up()
        wait_until(lambda: process.metric("steelyard_gateway_engines", role="prefill") == 2)
        assert books_balance(process)


@pytest.mark.parametrize("status", [500, 503])
def test_a_prefill_error_is_retried_on_another_pod(four: Four, status: int) -> None:
    prefill, decode = four
    prefill[0].behave = Behaviour(status=status)
    with gateway(pods(prefill, decode)) as process:
        assert [complete(process.port).status for _ in range(4)] == [200] * 4
        assert process.metric("steelyard_gateway_retries_total", leg="prefill") == len(prefill[0].calls()) > 0


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_an_engine_that_drains_is_asked_once_and_left_alone(four: Four, role: str) -> None:
    """Its pod may be listed as ready for a moment longer: requests must not find that out one by one."""
    prefill, decode = four
    draining = (prefill if role == "prefill" else decode)[0]
    draining.behave, draining.health = Behaviour(status=503), 503
    with gateway(pods(prefill, decode)) as process:
        assert [complete(process.port, prompt=str(i)).status for i in range(6)] == [200] * 6
        assert len(draining.calls()) == 1
        draining.behave, draining.health = Behaviour(), 200
        wait_until(lambda: process.metric("steelyard_gateway_engines", role=role) == 2)


def test_prefill_failing_everywhere_is_one_retry_and_the_engines_own_answer(
    four: Four,
) -> None:
    prefill, decode = four
    for engine in prefill:
        engine.behave = Behaviour(status=500)
    with gateway(pods(prefill, decode)) as process:
        assert complete(process.port).status == 500
        assert len(prefill[0].calls()) == len(prefill[1].calls()) == 1
        assert (ended(process, "failed"), books_balance(process)) == (1, True)
        assert (
            process.metric("steelyard_gateway_requests_total", outcome="failed", ttft_met="false", tpot_met="false")
            == 1
        )


@pytest.mark.parametrize("stream", [False, True])
def test_decode_that_dies_before_a_byte_is_recomputed_on_another(four: Four, stream: bool) -> None:
    prefill, decode = four
    died: list[Seen] = []

    def die_once(engine: FakeEngine, seen: Seen) -> Behaviour:
        if died:
            return Behaviour()
        died.append(seen)
        return Behaviour(die_after=0)

    for engine in decode:
        engine.behave = die_once
    with gateway(pods(prefill, decode)) as process:
        assert complete(process.port, stream=stream).text == " t0 t1 t2 t3"
        (again,) = [s for e in decode for s in e.calls() if s is not died[0]]
        assert "kv_transfer_params" not in again.body, "the dead pod may have fetched and released the KV"
        assert process.metric("steelyard_gateway_recomputed_total") == 1
        assert (ended(process, "completed"), books_balance(process)) == (1, True)


def test_decode_that_cannot_be_reached_leaves_the_kv_for_the_next(
    four: Four,
) -> None:
    prefill, decode = four
    with gateway(pods(prefill, decode)) as process:
        decode[0].down()
        answers = [complete(process.port).status for _ in range(2)]
        assert answers == [200, 200]
        assert all("kv_transfer_params" in seen.body for seen in decode[1].calls())


def test_a_decode_500_is_the_engines_answer(four: Four) -> None:
    """With onFailure: fail the engine says 500 where KV cannot be loaded: that is not ours to overrule."""
    prefill, decode = four
    for engine in decode:
        engine.behave = Behaviour(status=500)
    with gateway(pods(prefill, decode)) as process:
        answer = complete(process.port)
        assert (answer.status, answer.json["error"]["message"]) == (500, "engine says 500")
        assert sum(len(e.calls()) for e in decode) == 1


@pytest.mark.parametrize("split", [None, 9])
def test_a_stream_whose_engine_dies_ends_in_a_clean_error(four: Four, split: int | None) -> None:
    prefill, decode = four
    for engine in decode:
        engine.behave = Behaviour(tokens=10, die_after=3, split=split, interval=0.01)
    with gateway(pods(prefill, decode)) as process:
        connection = Connection(process.port)
        connection.send(raw_request("POST", "/v1/completions", completion(stream=True)))
        answer = connection.answer()
        assert answer.complete, "the chunked body is ended properly"
        assert [json.loads(e).get("choices", [{}])[0].get("text") for e in answer.events[:-1]] == [" t0", " t1", " t2"]
        assert json.loads(answer.events[-1])["error"]["code"] == "engine_failed"
        assert connection.closed()
        assert (ended(process, "failed"), books_balance(process)) == (1, True)
        assert sum(len(e.calls()) for e in decode) == 1, "no second answer after the first byte"


def test_a_stream_that_ends_without_done_is_a_failure(four: Four) -> None:
    prefill, decode = four
    for engine in decode:
        engine.behave = Behaviour(done=False)
    with gateway(pods(prefill, decode)) as process:
        answer = complete(process.port, stream=True)
        assert "error" in json.loads(answer.events[-1])
        assert ended(process, "failed") == 1


@pytest.mark.parametrize("done", [True, False])
def test_an_engines_own_error_event_is_passed_on_and_counts_as_failed(four: Four, done: bool) -> None:
    """The engine is well and said what went wrong: no second error from us, and no setting it aside."""
    prefill, decode = four
    for engine in decode:
        engine.behave = Behaviour(error_event=True, done=done)
    with gateway(pods(prefill, decode)) as process:
        answer = complete(process.port, stream=True)
        assert [e for e in answer.events if "error" in e] == ['{"error": {"message": "boom"}}']
        assert answer.complete
        assert ended(process, "failed") == 1
        assert process.metric("steelyard_gateway_engines_set_aside_total") == 0


def test_a_stale_kept_connection_is_no_failure(four: Four) -> None:
    prefill, decode = four
    with gateway(pods(prefill[:1], decode[:1])) as process:
        assert complete(process.port).status == 200
        for engine in (prefill[0], decode[0]):
            engine.down()
            engine.up()
        assert complete(process.port).status == 200
        assert process.metric("steelyard_gateway_retries_total") == 0


def test_e04_a_pod_that_takes_calls_and_never_answers_harms_no_other(
    four: Four,
) -> None:
    """vllm-project/production-stack#749: no time-outs, and one stuck backend exhausted the pool for all."""
    prefill, decode = four
    prefill[0].behave = Behaviour(silent=True)
    with gateway(pods(prefill, decode), {"stallTimeoutSeconds": 1.0}) as process, ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda i: complete(process.port, prompt=f"p{i}").status, range(24)))
        assert answers == [200] * 24
        assert len(prefill[0].calls()) <= 2, "late binding: a stuck pod holds one request"
        assert process.metric("steelyard_gateway_engines_set_aside_total", role="prefill") >= 1


def test_a_stream_that_stalls_ends_in_an_error(four: Four) -> None:
    prefill, decode = four
    for engine in decode:
        engine.behave = Behaviour(tokens=5, interval=3600)
    with gateway(pods(prefill, decode), {"stallTimeoutSeconds": 0.5}) as process:
        answer = complete(process.port, stream=True)
        assert answer.complete
        assert json.loads(answer.events[-1])["error"]["code"] == "engine_failed"
        wait_until(lambda: any(s.cancelled for e in decode for s in e.calls()))


def test_f03_a_request_never_outlives_its_time(four: Four) -> None:
    """ai-dynamo/dynamo#14098: a hang without any time-out."""
    prefill, decode = four
    for engine in decode:
        engine.behave = Behaviour(silent=True)
    with gateway(pods(prefill, decode), {"requestTimeoutSeconds": 0.5}) as process:
        answer = complete(process.port)
        assert (answer.status, answer.json["error"]["code"]) == (504, "timeout")
        wait_until(lambda: any(s.cancelled for e in decode for s in e.calls()))
        assert (ended(process, "failed"), books_balance(process)) == (1, True)


@pytest.mark.parametrize("missing", ["prefill", "decode"])
def test_e14_e18_a_missing_role_is_named(missing: str) -> None:
    """sgl-project/sglang#33740, llm-d/llm-d-router#402: ready with one side only; a 502 that read like a misconfiguration."""
    engine = FakeEngine()
    there = "decode" if missing == "prefill" else "prefill"
    with gateway([pod(engine, there), pod(engine, missing, "other", ready=False)]) as process:
        status, reason = process.admin("/ready")
        assert status == 503
        # Without decode no prefill pod can be used either: the role at fault is named first.
        assert missing.encode() in reason
        answer = complete(process.port)
        assert answer.status == 503
        assert missing in answer.json["error"]["message"]
        assert answer.headers["retry-after"] == "2"
        assert (ended(process, "refused"), books_balance(process)) == (1, True)
        process.write_pods([pod(engine, there), pod(engine, missing, "other")])
        wait_until(process.ready)
        assert complete(process.port).status == 200


def test_only_pods_of_one_kv_group_are_paired() -> None:
    engines = [FakeEngine() for _ in range(4)]
    roles, groups = ["prefill", "decode", "prefill", "decode"], ["old", "old", "new", "new"]
    listed = [pod(e, role, kvGroup=group) for e, role, group in zip(engines, roles, groups, strict=True)]
    for engine, group in zip(engines, groups, strict=True):
        engine.behave = Behaviour(kv={"from": group})
    with gateway(listed) as process, ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda i: complete(process.port, prompt=f"p{i}").status, range(24))) == {200}
        for engine, group in zip(engines[1::2], groups[1::2], strict=True):
            assert {s.body["kv_transfer_params"]["from"] for s in engine.calls()} == {group}
        process.write_pods([*listed[:1], *listed[2:]])  # the old group's decode pod has left
        wait_until(lambda: process.metric("steelyard_gateway_engines", role="prefill") == 1)
        assert complete(process.port).status == 200


@pytest.mark.parametrize("leg", ["prefill", "decode"])
@pytest.mark.parametrize("stream", [False, True])
def test_e20_a_client_that_leaves_frees_the_engine_at_once(four: Four, leg: str, stream: bool) -> None:
    """vllm-project/vllm#9428: the client goes away, the engine keeps generating."""
    prefill, decode = four
    at = prefill[:1] if leg == "prefill" else decode[:1]
    at[0].behave = Behaviour(tokens=4000, interval=0.05, delay=0 if leg == "decode" and stream else 3600)
    with gateway(pods(prefill[:1], decode[:1])) as process:
        connection = Connection(process.port)
        connection.send(raw_request("POST", "/v1/completions", completion(stream=stream)))
        if leg == "decode" and stream:
            connection.head()
        wait_until(lambda: at[0].calls())
        connection.close()
        wait_until(lambda: at[0].calls()[0].cancelled, seconds=2)
        wait_until(lambda: ended(process, "cancelled") == 1)
        assert (
            process.metric("steelyard_gateway_requests_total", outcome="cancelled", ttft_met="none", tpot_met="none")
            == 1
        )
        assert books_balance(process)
        assert process.metric("steelyard_gateway_outstanding_tokens") == 0


def test_a_client_that_leaves_the_queue_is_never_sent_anywhere(four: Four) -> None:
    prefill, decode = four
    release = threading.Event()
    prefill[0].behave = lambda engine, seen: Behaviour(delay=0 if release.is_set() else 1.0)
    with gateway(pods(prefill[:1], decode[:1])) as process, ThreadPoolExecutor(1) as pool:
        first = pool.submit(complete, process.port, prompt="first")
        wait_until(lambda: prefill[0].calls())
        waiting = Connection(process.port)
        waiting.send(raw_request("POST", "/v1/completions", completion("second")))
        wait_until(lambda: process.metric("steelyard_gateway_queued_requests", role="prefill") == 1)
        waiting.close()
        wait_until(lambda: ended(process, "cancelled") == 1)
        release.set()
        assert first.result().status == 200
        assert [s.body["prompt"] for s in prefill[0].calls()] == ["first"]


def test_a_slow_client_makes_its_engine_wait() -> None:
    engine = FakeEngine(Behaviour(tokens=1500, padding=8000))
    with gateway([pod(engine, "aggregated")], {"topology": "Aggregated"}) as process:
        connection = Connection(process.port)
        connection.send(raw_request("POST", "/v1/completions", completion(stream=True)))
        connection.head()

        def resident() -> int:
            return int(open(f"/proc/{process.process.pid}/statm").read().split()[1]) * 4 // 1024

        before = resident()
        threading.Event().wait(1.0)
        assert not engine.calls()[0].finished, "12 MB of answer do not fit into the buffers on the way"
        assert resident() - before < 8
        assert connection.answer_body().count(b"data: ") == 1501
        connection.close()


def test_shortest_first_and_first_come(four: Four) -> None:
    _, decode = four
    for order, expected in (("shortestFirst", ["s", "m", "l"]), ("fcfs", ["l", "m", "s"])):
        engine = FakeEngine()
        gate = threading.Event()
        engine.behave = lambda e, seen, gate=gate: Behaviour(delay=0.0 if gate.is_set() else 0.8)
        with (
            gateway(pods([engine], decode[:1]), {"order": order, "affinity": "none"}) as process,
            ThreadPoolExecutor(4) as pool,
        ):
            futures = [pool.submit(complete, process.port, prompt="0")]
            wait_until(lambda engine=engine: engine.calls())
            for n, name in enumerate(("l", "m", "s")):
                futures.append(pool.submit(complete, process.port, prompt=name * (900 - 300 * n)))
                wait_until(
                    lambda n=n, process=process: (
                        process.metric("steelyard_gateway_queued_requests", role="prefill") == n + 1
                    )
                )
            gate.set()
            assert [f.result().status for f in futures] == [200] * 4
            assert [s.body["prompt"][0] for s in engine.calls()[1:]] == expected


def test_prompts_with_a_known_beginning_return_to_its_replica(four: Four) -> None:
    prefill, decode = four
    with gateway(pods(prefill, decode)) as process:
        for name in ("a", "b", "a", "b", "b", "a", "a"):
            assert complete(process.port, prompt=name * 3000 + f" {len(prefill[0].calls())}").status == 200
        seen = [{s.body["prompt"][0] for s in engine.calls()} for engine in prefill]
        homes = [len(names) for names in seen]
        assert sum(homes) <= 3, f"each beginning has a home: {seen}"


def test_role_changes_lose_nothing() -> None:
    engines = [FakeEngine(Behaviour(tokens=5, interval=0.01)) for _ in range(3)]
    names = ["x", "y", "z"]
    rounds = [
        ["prefill", "decode", "decode"],
        ["prefill", "prefill", "decode"],
        ["decode", "prefill", "decode"],
        ["decode", "prefill", "prefill"],
    ]

    def listed(roles: list[str]) -> list[dict[str, object]]:
        return [pod(e, role, name) for e, role, name in zip(engines, roles, names, strict=True)]

    with gateway(listed(rounds[0])) as process, ThreadPoolExecutor(4) as pool:
        stop = threading.Event()

        def client() -> list[str]:
            texts = []
            while not stop.is_set():
                texts.append(complete(process.port, stream=True).text)
            return texts

        clients = [pool.submit(client) for _ in range(3)]
        for roles in [*rounds[1:], rounds[0]]:
            process.write_pods(listed(roles))
            wait_until(
                lambda roles=roles: (
                    process.metric("steelyard_gateway_engines", role="prefill") == roles.count("prefill")
                )
            )
            threading.Event().wait(0.3)
        stop.set()
        texts = [text for c in clients for text in c.result()]
        assert set(texts) == {" t0 t1 t2 t3 t4"}
        assert len(texts) > 20
        assert process.metric("steelyard_gateway_requests_total", outcome="completed") == len(texts)
