"""What a change of roles or groups means for requests that are under way."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from gateway_calls import Connection, complete, completion, raw_request
from gateway_fakes import Behaviour, FakeEngine, pod
from gateway_process import gateway, wait_until

LONG = Behaviour(tokens=100_000, interval=0.05)


def stream(port: int) -> Connection:
    """Begin a stream that has no end of its own."""
    connection = Connection(port)
    connection.send(raw_request("POST", "/v1/completions", completion("long", stream=True)))
    connection.head()
    return connection


def test_a_pod_turned_to_prefill_takes_none_while_it_still_decodes() -> None:
    """A prefill there would hold up every stream it still runs; another prefill pod is at hand."""
    prefill, turned, decode = (FakeEngine(Behaviour()) for _ in range(3))
    turned.behave = LONG
    with gateway([pod(prefill, "prefill"), pod(turned, "decode", "turned")]) as process:
        streams = [stream(process.port) for _ in range(8)]
        turned.behave = Behaviour()
        process.write_pods([pod(prefill, "prefill"), pod(turned, "prefill", "turned"), pod(decode, "decode")])
        wait_until(lambda: process.metric("steelyard_gateway_engines", role="prefill") == 2)
        before = len(turned.calls())
        for i in range(6):
            assert complete(process.port, prompt=str(i)).status == 200
        assert len(turned.calls()) == before
        for connection in streams:
            connection.close()
        wait_until(lambda: process.metric("steelyard_gateway_requests_total", outcome="cancelled") == 8)
        for i in range(6):
            assert complete(process.port, prompt=str(i)).status == 200
        assert len(turned.calls()) > before, "and its share once they are over"


def test_the_only_prefill_pod_takes_prefills_whatever_it_still_decodes() -> None:
    turned, decode = FakeEngine(), FakeEngine()
    other = FakeEngine()
    turned.behave = LONG
    with gateway([pod(other, "prefill"), pod(turned, "decode", "turned")]) as process:
        streams = [stream(process.port) for _ in range(8)]
        turned.behave = Behaviour()
        process.write_pods([pod(turned, "prefill", "turned"), pod(decode, "decode")])
        # One that was prefilled by the other pod may still be decoded here: the first call says nothing yet.
        wait_until(
            lambda: (
                complete(process.port).status == 200 and any(seen.body["max_tokens"] == 1 for seen in turned.calls())
            )
        )
        assert decode.calls()
        assert all(not connection.file.closed for connection in streams)
        assert process.metric("steelyard_gateway_requests_total", outcome="failed") == 0


@pytest.mark.parametrize("first", ["Disaggregated", "Aggregated"])
def test_a_change_of_topology_loses_nobody_who_waits_or_runs(first: str) -> None:
    """Requests at every stage: running, prefilled and waiting for decode, waiting for prefill."""
    engines = [FakeEngine(Behaviour(tokens=3, interval=0.05)) for _ in range(2)]
    pods = {
        "Disaggregated": [pod(e, role) for e, role in zip(engines, ["prefill", "decode"], strict=True)],
        "Aggregated": [pod(e, "aggregated") for e in engines],
    }
    second = next(topology for topology in pods if topology != first)
    with gateway(pods[first], {"topology": first, "decodeSlots": 1}) as process, ThreadPoolExecutor(12) as pool:
        wait_until(process.ready)
        answers = [pool.submit(complete, process.port, prompt=str(i), stream=True) for i in range(12)]
        wait_until(lambda: process.metric("steelyard_gateway_requests_total", outcome="completed") >= 1)
        process.write_settings(topology=second)
        process.write_pods(pods[second])
        assert {answer.result().text for answer in answers} == {" t0 t1 t2"}
        wait_until(lambda: process.metric("steelyard_gateway_requests_total", outcome="completed") == 12)
        for gauge in ("queued_requests", "queued_tokens", "outstanding_tokens"):
            assert process.metric(f"steelyard_gateway_{gauge}") == 0


def test_who_waits_for_a_group_that_leaves_is_computed_anew_by_another() -> None:
    """A rollout replaces the kv-group: KV of the old one is of no use to the new decode pods."""
    old_prefill, old_decode, new_prefill, new_decode = (FakeEngine() for _ in range(4))
    old_decode.behave = LONG
    old = [pod(old_prefill, "prefill", kvGroup="old"), pod(old_decode, "decode", kvGroup="old")]
    new = [pod(new_prefill, "prefill", kvGroup="new"), pod(new_decode, "decode", kvGroup="new")]
    with gateway(old, {"decodeSlots": 1}) as process, ThreadPoolExecutor(1) as pool:
        running = stream(process.port)
        waiting = pool.submit(complete, process.port, prompt="waiting")
        wait_until(lambda: process.metric("steelyard_gateway_queued_requests", role="decode") == 1)
        process.write_pods([old[0], *new])
        assert waiting.result().text == " t0 t1 t2 t3"
        (served,) = new_decode.calls()
        assert "kv_transfer_params" not in served.body
        assert not new_prefill.calls()
        assert process.metric("steelyard_gateway_recomputed_total") == 1
        assert b"t1" in running.file.readline() + running.file.readline() + running.file.read(800), "and streams go on"
        running.close()
