"""KV that cannot be fetched while streams pass: recompute gives the same text and counts, fail gives a clean error at once.

Two services, one of each kind, whose port for KV is disturbed: connections are refused, packets are lost, also on connections
that were open, or bits are changed on the way. What else can be wrong with a transfer (cut, another's, any single bit) is
tried over loopback: images/engine/tests/test_engine_transfer_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from steelyard.api.labels import COMPONENT, DECODE, KV_PORT
from steelyard.build.meta import ENGINE

from e2e import faults
from e2e.load import Arrival, Lengths, Outcome, Pattern, Result, Shape, summarise, synthetic
from e2e.load.records import status_kind
from e2e.platform import Platform
from e2e.stage import Stage, staged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAMESPACE = "faults-transfer"
LENIENT, STRICT = "recompute", "fail"  # services, named by what they do on failure
REFUSED, LOST, DAMAGED = "refused", "lost", "damaged"
ACCELERATOR = """
apiVersion: serving.steelyard.dev/v1alpha1
kind: Accelerator
metadata: {name: steady}
spec: {vendor: test, memoryBandwidth: 33.0e+9, peak: {bf16: 10.0e+12}}
"""
SERVICE = """
---
apiVersion: serving.steelyard.dev/v1alpha1
kind: InferenceService
metadata: {name: NAME}
spec:
  model:
    uri: hf://example/half-a-billion
    contextLength: 2048
    shape: {parameters: 500000000, layers: 24, hiddenSize: 896, attentionHeads: 14, kvHeads: 2, headDimension: 64}
  engine: {name: simulated}
  accelerator: steady
  transfer: {onFailure: NAME}
  routing: {requestTimeout: 60s}
"""
LOAD = synthetic(Shape(Pattern.POISSON, rate=2), Lengths(100, 40, 0.3), 900, seed=2)  # stopped, it does not end
PROBE = tuple(Arrival(0.2 * number, 60 + number, 10) for number in range(5))
FAILURES = "steelyard_engine_kv_transfer_failures_total"
COMPUTED = 'vllm:prompt_tokens_by_source_total{.*source="local_compute"'


@pytest.fixture(scope="module")
def stage(platform: Platform) -> Iterator[Stage]:
    manifests = ACCELERATOR + SERVICE.replace("NAME", LENIENT) + SERVICE.replace("NAME", STRICT)
    with staged(platform, manifests, NAMESPACE, LENIENT, LOAD) as found:
        yield found
    platform.kubectl("delete", "accelerator", "steady")


def strictly(stage: Stage, seed: int) -> Result:
    """What becomes of the probe at the service that does not recompute."""
    address = stage.platform.get("service", STRICT, NAMESPACE)["spec"]["clusterIP"]
    return stage.asked(PROBE, seed=seed, target=stage.at(address, STRICT))


def disturbed(stage: Stage, how: str) -> AbstractContextManager[None]:
    """The KV port of both services' engines, refused, without packets, or with other bits than were sent."""
    engines = stage.platform.items("pod", NAMESPACE, f"{COMPONENT}={ENGINE}")
    addresses = [pod["status"]["podIP"] for pod in engines]
    if how == DAMAGED:
        return faults.damaged_port(stage.machines, addresses, KV_PORT)
    return faults.closed_port(stage.machines, addresses, KV_PORT, {REFUSED: "REJECT", LOST: "DROP"}[how])


@pytest.mark.parametrize("how", [REFUSED, LOST, DAMAGED])
def test_kv_cannot_be_fetched(stage: Stage, how: str) -> None:
    seed = {REFUSED: 21, LOST: 22, DAMAGED: 23}[how]
    stage.load.mark(f"KV {how}")
    broken, failures, computed = stage.broken(), stage.metric(DECODE, FAILURES), stage.metric(DECODE, COMPUTED)
    with disturbed(stage, how):
        lenient, strict = stage.asked(PROBE, seed=seed), strictly(stage, seed)
    assert not lenient.broken, lenient.explain()
    assert stage.metric(DECODE, FAILURES) >= failures + len(PROBE)
    assert stage.metric(DECODE, COMPUTED) >= computed + sum(one.prompt_tokens for one in PROBE), (
        "recomputed, and counted"
    )
    assert [(one.outcome, one.kind) for one in strict.records] == [(Outcome.FAILED, status_kind(500))] * len(PROBE)
    assert all("KV transfer failed" in (one.detail or "") for one in strict.records), strict.explain()
    stage.load.mark(f"after: KV {how}")
    calm, again = stage.asked(PROBE, seed=seed), strictly(stage, seed)
    texts = [one.digest for one in calm.records]
    assert all(texts)
    assert texts == [one.digest for one in lenient.records] == [one.digest for one in again.records], "one text, always"
    stage.goes_on()
    assert stage.broken() == broken, "the load's requests had to be recomputed, and none was lost"


def test_in_the_end_every_request_was_answered_once(stage: Stage) -> None:
    stage.load.stop()
    result = stage.load.result(seconds=120)
    assert not result.broken, result.explain()
    whole = [one for one in result.records if one.outcome is Outcome.COMPLETED]
    assert [one for one in whole if one.tokens != one.output_tokens] == []
    assert summarise(result).duplicated == 0
