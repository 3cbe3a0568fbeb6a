"""Engines that die, stand still or run out of memory while streams pass through them.

A request of which the client has seen nothing is tried once more elsewhere and gives the same text; a stream that was cut ends
with an error event and counts as failed; nothing hangs, is answered twice or is cut silently. The rows follow each other on one
service under one load.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from steelyard.api.labels import DECODE, PREFILL

from e2e import faults
from e2e.load import Arrival, Kind, Lengths, Outcome, Pattern, Result, Shape, summarise, synthetic
from e2e.platform import Platform
from e2e.stage import GATEWAY, Pod, Stage, mark_before, staged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME, NAMESPACE = "faulty", "faults-engines"
MANIFESTS = """
apiVersion: serving.steelyard.dev/v1alpha1
kind: Accelerator
metadata: {name: ponderous}
spec:  # a step takes 40 ms for the weights of the model below, and 2.2 ms for each token or sequence
  vendor: test
  memoryBandwidth: 33.0e+9
  peak: {bf16: 1.0e+12}
---
apiVersion: serving.steelyard.dev/v1alpha1
kind: InferenceService
metadata: {name: faulty}
spec:
  model:
    uri: hf://example/half-a-billion
    contextLength: 4096
    shape: {parameters: 500000000, layers: 24, hiddenSize: 896, attentionHeads: 14, kvHeads: 2, headDimension: 64}
  engine: {name: simulated}
  accelerator: ponderous
  prefill: {replicas: {min: 2, max: 2}}
  decode: {replicas: {min: 2, max: 2}, resources: {limits: {memory: 256Mi}}}
  batching: {maxSequences: 32}
  routing: {replicas: 2, requestTimeout: 60s}
"""
# Streams of six seconds: half a dozen on each decode pod, so one that is killed a moment later still has some. Stopped in the end.
LOAD = synthetic(Shape(Pattern.POISSON, rate=2), Lengths(100, 120, 0.3), 900, seed=1)
LONG = (Arrival(0, 3500, 20), Arrival(0.05, 3500, 20))  # each takes a prefill pod nine seconds
SHORT = tuple(Arrival(0.1 * number, 40 + number, 20) for number in range(6))
OUTSTANDING = 'steelyard_gateway_outstanding_tokens{role="prefill"}'
CUTTING = ("decode killed", "engines stopped", "decode out of memory")  # rows that end streams


@pytest.fixture(scope="module")
def stage(platform: Platform) -> Iterator[Stage]:
    with staged(platform, MANIFESTS, NAMESPACE, NAME, LOAD) as found:
        yield found
    platform.kubectl("delete", "accelerator", "ponderous")


def texts_are_right(stage: Stage, result: Result) -> None:
    """All was answered, with the texts that the same prompts get when nothing is wrong."""
    assert not result.broken, result.explain()
    calm = stage.asked(result.spec.schedule, seed=result.spec.seed)
    assert not calm.broken, calm.explain()
    assert [one.digest for one in result.records] == [one.digest for one in calm.records]
    assert all(one.digest for one in calm.records)


@contextmanager
def nobody_else_suffers(stage: Stage, row: str) -> Iterator[None]:
    """The load's requests of this row are all answered, and so are those after it."""
    stage.load.mark(row)
    broken = stage.broken()
    yield
    stage.goes_on()
    assert stage.broken() == broken, row


@contextmanager
def streams_are_cut(stage: Stage, row: str) -> Iterator[None]:
    """Some streams of the load break in this row, the gateways count as many, and then it goes on as before."""
    stage.load.mark(row)
    broken, failed = stage.broken(), stage.failed()
    yield
    stage.platform.wait_for("streams to be cut", lambda: stage.broken() > broken, 60)
    stage.goes_on()  # what was under way has ended by now
    assert stage.failed() - failed == stage.broken() - broken, "the gateways and the clients must have seen the same"
    stage.load.mark(f"after: {row}")


def busiest(stage: Stage, part: str, pattern: str) -> Pod:
    """The pod of a part with the most of something, once one has any."""

    def found() -> Pod | None:
        figures = stage.metrics(part, pattern)
        name = max(figures, key=lambda one: figures[one])
        return next(pod for pod in stage.pods(part) if pod.name == name) if figures[name] else None

    pod = stage.platform.wait_for(f"{pattern} on a {part} pod", found, 60)
    assert isinstance(pod, Pod)
    return pod


def signal(stage: Stage, pods: list[Pod], name: str) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pod: faults.send(stage.platform, stage.namespace, pod.name, name), pods))


def test_killed_in_mid_prefill(stage: Stage) -> None:
    retries = stage.metric(GATEWAY, 'steelyard_gateway_retries_total{leg="prefill"}')
    with nobody_else_suffers(stage, "prefill killed"):
        with stage.probe(LONG, seed=11) as probe:
            stage.platform.wait_for(
                "a long prompt on each prefill pod", lambda: stage.metric(GATEWAY, OUTSTANDING) > 5000, 60
            )
            victim = stage.pods(PREFILL)[0]
            signal(stage, [victim], "SIGKILL")
            result = probe.result(seconds=120)
        stage.revived(victim, PREFILL)
    texts_are_right(stage, result)
    assert stage.metric(GATEWAY, 'steelyard_gateway_retries_total{leg="prefill"}') > retries


def test_killed_between_the_calls(stage: Stage) -> None:
    """The state that the decode pods are told to fetch dies before they do: they stand still meanwhile."""
    failures = stage.metric(DECODE, "steelyard_engine_kv_transfer_failures_total")
    computed = stage.metric(DECODE, 'vllm:prompt_tokens_by_source_total{.*source="local_compute"')
    with nobody_else_suffers(stage, "prefill killed between the calls"):
        decoding = stage.pods(DECODE)
        signal(stage, decoding, "SIGSTOP")
        with stage.probe(SHORT, seed=12) as probe:
            victim = busiest(stage, PREFILL, "steelyard_engine_kv_held")
            signal(stage, [victim], "SIGKILL")
            signal(stage, decoding, "SIGCONT")
            result = probe.result(seconds=120)
        stage.revived(victim, PREFILL)
    texts_are_right(stage, result)
    assert stage.metric(DECODE, "steelyard_engine_kv_transfer_failures_total") > failures
    assert stage.metric(DECODE, 'vllm:prompt_tokens_by_source_total{.*source="local_compute"') > computed + 40


def test_killed_in_mid_decode(stage: Stage) -> None:
    with streams_are_cut(stage, CUTTING[0]):
        victim = busiest(stage, DECODE, "vllm:num_requests_running")
        signal(stage, [victim], "SIGKILL")
        assert stage.revived(victim, DECODE).ended == "Error"


def test_engines_that_accept_and_never_answer(stage: Stage) -> None:
    """One of each role stands still: its requests go elsewhere after the stall time-out, and the kubelet restarts it."""
    retries = stage.metric(GATEWAY, "steelyard_gateway_retries_total")
    with streams_are_cut(stage, CUTTING[1]):
        standing = {PREFILL: stage.pods(PREFILL)[0], DECODE: busiest(stage, DECODE, "vllm:num_requests_running")}
        signal(stage, list(standing.values()), "SIGSTOP")
        result = stage.asked(SHORT, seed=13)
        for part, pod in standing.items():
            stage.revived(pod, part)
    texts_are_right(stage, result)
    assert stage.metric(GATEWAY, "steelyard_gateway_retries_total") > retries


def test_out_of_memory(stage: Stage) -> None:
    with streams_are_cut(stage, CUTTING[2]):
        victim = busiest(stage, DECODE, "vllm:num_requests_running")
        faults.exhaust_memory(stage.platform, stage.namespace, victim.name)
        assert stage.revived(victim, DECODE).ended == "OOMKilled"

    def told() -> bool:
        events = stage.platform.items("event", NAMESPACE)
        return any(one["reason"] == "OutOfMemory" and victim.name in one["message"] for one in events)

    stage.platform.wait_for("an event that tells it", told, 30)


def test_in_the_end_every_request_is_accounted_for(stage: Stage) -> None:
    stage.load.stop()
    result = stage.load.result(seconds=120)
    for one in result.broken:
        row = mark_before(result, one.ended or 0.0)
        assert (one.outcome, one.kind) == (Outcome.FAILED, Kind.ERROR_EVENT), result.explain()
        assert row is not None, result.explain()
        assert row.text in CUTTING, f"{row}: {result.explain()}"
    whole = [one for one in result.records if one.outcome is Outcome.COMPLETED]
    assert [one for one in whole if one.tokens != one.output_tokens] == [], "an answer was cut silently"
    assert summarise(result).duplicated == 0
    sent = [one for one in result.records if one.sent is not None]
    assert len(sent) == len(whole) + len(result.broken)
