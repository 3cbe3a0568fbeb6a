"""A gateway that dies, and clients that are slow, gone, mistaken or too many: all others are served as if nothing were.

One service with two gateways under one load; the rows follow each other. How much memory a slow client may hold, and what each
malformed request gets in every detail, is tried over loopback: operator/tests/gateway.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from steelyard.api.labels import DECODE, GATEWAY_PORT, PREFILL

from e2e import faults
from e2e.load import Arrival, Bounds, Habits, Kind, Lengths, Outcome, Pattern, Shape, summarise, synthetic
from e2e.platform import Platform
from e2e.stage import GATEWAY, Pod, Stage, mark_before, staged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME, NAMESPACE = "front", "faults-clients"
MANIFESTS = """
apiVersion: serving.steelyard.dev/v1alpha1
kind: Accelerator
metadata: {name: even}
spec: {vendor: test, memoryBandwidth: 66.0e+9, peak: {bf16: 10.0e+12}}
---
apiVersion: serving.steelyard.dev/v1alpha1
kind: InferenceService
metadata: {name: front}
spec:
  model:
    uri: hf://example/half-a-billion
    contextLength: 4096
    shape: {parameters: 500000000, layers: 24, hiddenSize: 896, attentionHeads: 14, kvHeads: 2, headDimension: 64}
  engine: {name: simulated}
  accelerator: even
  batching: {maxSequences: 64}
  routing: {replicas: 2, requestTimeout: 60s}
"""
LOAD = synthetic(Shape(Pattern.POISSON, rate=2), Lengths(100, 60, 0.3), 900, seed=3)  # stopped, it does not end
BROKEN_CONNECTIONS = {Kind.CUT, Kind.NO_ANSWER, Kind.UNREACHABLE}
IDLE_CONNECTIONS = 10_000
EXPIRED = "steelyard_engine_kv_expired_total"
GOOD = {"model": NAME, "prompt": "weigh", "max_tokens": 2}


@pytest.fixture(scope="module")
def stage(platform: Platform) -> Iterator[Stage]:
    with staged(platform, MANIFESTS, NAMESPACE, NAME, LOAD) as found:
        yield found
    platform.kubectl("delete", "accelerator", "even")


@contextmanager
def nobody_else_suffers(stage: Stage, row: str) -> Iterator[None]:
    stage.load.mark(row)
    broken = stage.broken()
    yield
    stage.goes_on()
    assert stage.broken() == broken, row


def served_by(stage: Stage) -> set[str]:
    """The addresses that the Service sends to."""
    slices = stage.platform.items("endpointslice", NAMESPACE, f"kubernetes.io/service-name={NAME}")
    ends = [end for one in slices for end in one["endpoints"] or [] if end["conditions"].get("ready")]
    return {address for end in ends for address in end["addresses"]}


def test_a_gateway_is_killed(stage: Stage) -> None:
    stage.load.mark("gateway killed")
    doomed, other = stage.pods(GATEWAY)
    streams = synthetic(Shape(rate=1.5), Lengths(100, 200), 300, seed=4)  # stopped
    with (
        stage.probe(streams, target=stage.at(doomed.address)) as lost,
        stage.probe(streams, target=stage.at(other.address)) as untouched,
    ):
        stage.platform.wait_for(
            "streams through both", lambda: min(lost.progress().under_way, untouched.progress().under_way) > 2, 60
        )
        faults.send(stage.platform, NAMESPACE, doomed.name, "SIGKILL")
        once = stage.revived(doomed, GATEWAY)
        lost.stop()
        untouched.stop()
        broken = lost.result(seconds=60).broken
        result = untouched.result(seconds=60)
    assert not result.broken, result.explain()
    assert {one.outcome for one in broken} == {Outcome.FAILED}
    assert {one.kind for one in broken} <= BROKEN_CONNECTIONS, "the client sees a broken connection, nothing hangs"
    again_down(stage, once, other)
    stage.load.mark("after: gateway killed")
    stage.goes_on()


def again_down(stage: Stage, doomed: Pod, other: Pod) -> None:
    """Killed a second time it stays down for ten seconds, in which the Service sends to the other alone."""
    faults.send(stage.platform, NAMESPACE, doomed.name, "SIGKILL")
    stage.platform.wait_for("the Service to leave it out", lambda: served_by(stage) == {other.address}, 30)
    probe = stage.asked(tuple(Arrival(0.05 * number, 20, 3) for number in range(20)), seed=5)
    assert served_by(stage) == {other.address}, "still down"
    assert not probe.broken, probe.explain()
    stage.revived(doomed, GATEWAY)
    stage.platform.wait_for("the Service to send there again", lambda: len(served_by(stage)) == 2, 30)


def test_slow_clients(stage: Stage) -> None:
    """They read a byte a second: their answers wait in buffers that are bounded, and no engine waits for them."""
    with nobody_else_suffers(stage, "slow clients"):
        habits, bounds = Habits(slow_fraction=1.0, slow_bytes_per_second=1.0), Bounds(request=12, silence=40)
        schedule = tuple(Arrival(0.05 * number, 40, 200) for number in range(20))
        result = stage.asked(schedule, habits=habits, bounds=bounds, seed=6)
    assert {one.outcome for one in result.records} == {Outcome.TIMED_OUT}, "read to their end they would take minutes"


def test_malformed_and_oversized_requests(stage: Stage) -> None:
    failed = stage.failed()
    with nobody_else_suffers(stage, "malformed requests"):
        address = stage.spec.target.host
        command = stage.machine.network_command([sys.executable, "-c", SEND, address, str(GATEWAY_PORT)])
        texts = [base64.b64encode(data).decode() for data, _ in MALFORMED] * 5
        printed = subprocess.run(command, input="\n".join(texts), stdout=subprocess.PIPE, text=True, check=True).stdout
    assert json.loads(printed) == [status for _, status in MALFORMED] * 5
    assert stage.failed() == failed, "a client's mistake is not the service's failure"


def test_idle_connections(stage: Stage) -> None:
    with nobody_else_suffers(stage, "idle connections"):
        addresses = [pod.address for pod in stage.pods(GATEWAY)]
        command = [sys.executable, "-c", IDLE, str(GATEWAY_PORT), str(IDLE_CONNECTIONS), *addresses]
        with subprocess.Popen(
            stage.machine.network_command(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            opened = int(holder.stdout.readline())
            stage.goes_on()
            stage.goes_on()
            holder.communicate("")
        assert opened == IDLE_CONNECTIONS


def test_clients_that_leave_and_the_end_of_all(stage: Stage) -> None:
    """Half of them leave at some token, half while they wait or are prefilled: slots and KV are free at once.

    A reply of prefill that crosses its client's leaving is seen by nobody: those few wait for the end of their lease.
    """
    expired = stage.metric(PREFILL, EXPIRED)
    with nobody_else_suffers(stage, "clients gone"):
        schedule = synthetic(Shape(rate=4), Lengths(800, 200), 6, seed=8)
        result = stage.asked(schedule, habits=Habits(cancel_fraction=1.0), seed=8)
    assert not result.broken, result.explain()
    assert result.count(Outcome.CANCELLED, Kind.PLANNED) > len(schedule) / 2
    stage.load.stop()
    whole = stage.load.result(seconds=120)
    for part in (PREFILL, DECODE):
        for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
            stage.platform.wait_for(f"{gauge} of {part} to be 0", partial(none_left, stage, part, gauge), 60)
    assert stage.metric(PREFILL, EXPIRED) - expired <= len(schedule) / 10
    aborted = 'vllm:request_success_total{.*finished_reason="abort"'
    assert stage.metric(PREFILL, aborted) + stage.metric(DECODE, aborted) > 0
    for one in whole.broken:
        row = mark_before(whole, one.ended or 0.0)
        assert row is not None, whole.explain()
        assert row.text == "gateway killed", f"{row}: {whole.explain()}"
        assert one.kind in BROKEN_CONNECTIONS, whole.explain()
    done = [one for one in whole.records if one.outcome is Outcome.COMPLETED]
    assert [one for one in done if one.tokens != one.output_tokens] == []
    assert summarise(whole).duplicated == 0


def none_left(stage: Stage, part: str, gauge: str) -> bool:
    return stage.metric(part, gauge) == 0


def _post(body: bytes, *heads: bytes, path: bytes = b"/v1/completions") -> bytes:
    lines = [b"POST %b HTTP/1.1" % path, b"host: x", b"content-length: %d" % len(body), *heads]
    return b"\r\n".join([*lines, b"", b""]) + body


def _completion(**changes: object) -> bytes:
    return _post(json.dumps({**GOOD, **changes}).encode())


MALFORMED = (
    (b"weigh this\r\n\r\n", 400),
    (_post(b"{"), 400),
    (_post(b"\xff\xfe"), 400),
    (_post(b"[" * 100_000), 400),
    (_completion(max_tokens=-1), 400),
    (_completion(max_tokens=5000), 400),
    (_completion(prompt=None), 400),
    (_completion(prompt="long " * 5000), 400),
    (_completion(model="other"), 404),
    (_completion(kv_transfer_params={"remote_host": "10.0.0.1"}), 400),
    (_post(b"{}", path=b"/v1/embeddings"), 404),
    (b"GET /v1/completions HTTP/1.1\r\nhost: x\r\n\r\n", 405),
    (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n\r\n", 411),
    (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n", 413),
    (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-long: " + b"y" * 40_000 + b"\r\n\r\n", 431),
)
SEND = """
import base64, json, socket, sys
def status(data):
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30) as connection:
        connection.sendall(data)
        return int(connection.makefile("rb").readline().split()[1])
print(json.dumps([status(base64.b64decode(text)) for text in sys.stdin]))
"""
IDLE = """
import resource, socket, sys
port, wanted, addresses = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
resource.setrlimit(resource.RLIMIT_NOFILE, (wanted + 100,) * 2)
held = [socket.create_connection((addresses[n % len(addresses)], port), timeout=30) for n in range(wanted)]
print(len(held), flush=True)
sys.stdin.read()
"""
