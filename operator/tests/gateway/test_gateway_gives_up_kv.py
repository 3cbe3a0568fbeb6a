"""KV that nobody will fetch is given up on the pod that holds it; KV that was fetched is not asked about."""

from typing import Any

import pytest
from gateway_calls import Connection, complete, completion, raw_request
from gateway_fakes import KV, Behaviour, FakeEngine, pod
from gateway_process import gateway, wait_until


@pytest.mark.parametrize(
    ("because", "decode", "status"),
    [
        ("decode broke off twice", Behaviour(die_after=0), 502),
        ("decode refused the request", Behaviour(status=400), 400),
        ("decode could not load it", Behaviour(status=500), 500),
    ],
)
def test_what_decode_did_not_use_is_given_up_once(because: str, decode: Behaviour, status: int) -> None:
    prefill = FakeEngine()
    with gateway([pod(prefill, "prefill"), pod(FakeEngine(decode), "decode")]) as process:
        assert complete(process.port).status == status, because
        wait_until(lambda: prefill.released() == ["cap-1"])
        assert process.metric("steelyard_gateway_kv_given_up_total") == 1


@pytest.mark.parametrize("fields", [{}, {"stream": True}])
def test_what_decode_used_is_not(fields: dict[str, Any]) -> None:
    prefill = FakeEngine()
    with gateway([pod(prefill, "prefill"), pod(FakeEngine(), "decode")]) as process:
        assert complete(process.port, **fields).status == 200
        assert process.metric("steelyard_gateway_kv_given_up_total") == 0
        assert prefill.released() == []


def test_a_client_that_leaves_while_it_waits_for_decode() -> None:
    prefill, decode = FakeEngine(), FakeEngine(Behaviour(silent=True))
    with gateway([pod(prefill, "prefill"), pod(decode, "decode")], {"decodeSlots": 1}) as process:
        clients = [Connection(process.port) for _ in range(2)]
        for number, client in enumerate(clients, 1):
            client.send(raw_request("POST", "/v1/completions", completion(stream=True)))
            wait_until(lambda number=number: sum(call.finished for call in prefill.calls()) == number)
        wait_until(lambda: process.metric("steelyard_gateway_queued_requests", role="decode") == 1)
        clients[1].close()
        wait_until(lambda: prefill.released() == ["cap-1"])
        clients[0].close()
        wait_until(lambda: prefill.released() == ["cap-1", "cap-1"])  # it may not have been fetched yet


@pytest.mark.parametrize("handle", ["a b", "x HTTP/1.1\r\nhost: y\r\n\r\n", "../v1", "", None, 7])
def test_an_id_that_no_target_can_hold_is_left_to_its_lease(handle: object) -> None:
    prefill = FakeEngine(Behaviour(kv={**KV, "remote_request_id": handle}))
    with gateway([pod(prefill, "prefill"), pod(FakeEngine(Behaviour(status=400)), "decode")]) as process:
        assert complete(process.port).status == 400
        assert complete(process.port).status == 400
        assert prefill.released() == []
        assert len(prefill.seen) == 2, "nothing else was sent"
