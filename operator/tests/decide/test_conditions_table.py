"""Every row of every condition's truth table, and the status and events made of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from operator_bodies import KNOWN, service_body, simulated
from steelyard.api.labels import PAUSED
from steelyard.api.reasons import ConditionType, EventReason, Reason
from steelyard.api.service import InferenceService
from steelyard.api.status import Status
from steelyard.decide.conditions import Failure, verdicts
from steelyard.decide.plan import plan
from steelyard.decide.quantizing import orders
from steelyard.decide.replicas import CREATED_WITH
from steelyard.decide.snapshot import Deployment, Job, Pod, Revision, Snapshot, Trouble, Weights
from steelyard.decide.status import previous_conditions, status, transitions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def deployment(pool: str, **fields: Any) -> Deployment:
    base = Deployment(
        name=f"chat-{pool}" if pool else "chat",
        pool=pool,
        replicas=1 if pool else 2,
        replicas_written=True,
        ready=1 if pool else 2,
        updated=1 if pool else 2,
        observed=True,
        revision="r1",
    )
    return replace(base, **fields)


def pod(role: str, **fields: Any) -> Pod:
    base = Pod(f"chat-{role}-x", pool=role, role=role, ready=True, terminating=False, weights=Weights.LOADED)
    return replace(base, **fields)


def world(spec: dict[str, Any] | None = None, *, stored: bool = True, **parts: Any) -> Snapshot:
    """A service that runs as it should, but for what is given."""
    body = service_body(spec, **parts.pop("meta", {}))
    given: dict[str, Any] = {
        "deployments": (deployment(""), deployment("prefill"), deployment("decode")),
        "pods": (pod("prefill"), pod("decode")),
    }
    snapshot = Snapshot(service=body, accelerators=KNOWN, **(given | parts))
    revision = Revision("chat-1", 1, plan(snapshot).spec_hash or "old", ())
    return replace(snapshot, revisions=(revision,) if stored else ())


def quantizing(failed: bool = False, trouble: Trouble | None = None, stored: bool = True, **parts: Any) -> Snapshot:
    """A service that runs as it should, of whose new spec the weights are to be quantized; the Job's state as given."""
    asked = world(QUANTIZED, stored=False, **parts)
    [order] = orders(InferenceService.read(asked.service))
    job = Job(order.job, done=False, failed=failed, runs=False, words="said", trouble=trouble)
    return replace(asked, jobs=(job,), revisions=(Revision("chat-1", 1, "old", ()),) if stored else ())


QUANTIZED = {
    "model": {"uri": "hf://org/model@v1", "servedName": None},
    "engine": {"name": "vllm"},
    "accelerator": "h200",
    "quantization": {"source": "Job", "weights": "int8", "job": {"claim": "quantized"}},
}
NO_IMAGE = Trouble(Reason.IMAGE_UNAVAILABLE, "not found")
HEALTHY = world()
REFUSED = {"accelerator": "h2000"}
PAUSE = {"annotations": {PAUSED: "true"}}
NOTHING: dict[str, Any] = {"deployments": (), "pods": ()}

TABLE: list[tuple[str, str, str, Snapshot, Failure | None]] = [
    ("Accepted", "True", "Valid", HEALTHY, None),
    ("Accepted", "False", "UnknownAccelerator", world(REFUSED), None),
    ("Accepted", "False", "InvalidSpec", world({"model": {"uri": "ftp://x"}}), None),
    ("Accepted", "False", "NameTaken", HEALTHY, Failure(Reason.NAME_TAKEN, "Service/chat", refused=True)),
    ("ObjectivesFeasible", "Unknown", "NoObjectives", HEALTHY, None),
    ("ObjectivesFeasible", "Unknown", "NotAccepted", world(REFUSED), None),
    ("ObjectivesFeasible", "Unknown", "NotEnoughFacts", world({"objectives": {"timeToFirstToken": "1s"}}), None),
    ("ObjectivesFeasible", "True", "Feasible", world(simulated({"objectives": {"timePerOutputToken": "50ms"}})), None),
    ("ObjectivesFeasible", "False", "Unreachable", world(simulated({"objectives": {"timePerOutputToken": "3ms"}})), None),
    ("ObjectivesFeasible", "False", "Unreachable", world(simulated({"objectives": {"timeToFirstToken": "3ms"}})), None),
    ("ModelReady", "True", "WeightsLoaded", HEALTHY, None),
    ("ModelReady", "True", "WeightsLoaded", world(simulated(), pods=()), None),
    ("ModelReady", "Unknown", "NotAccepted", world(REFUSED, stored=False, **NOTHING), None),
    ("ModelReady", "False", "WeightsLoading", world(pods=(pod("prefill", weights=Weights.LOADING),)), None),
    ("ModelReady", "False", "WeightsLoading", world(pods=(pod("prefill", terminating=True),)), None),
    ("ModelReady", "False", "WeightsUnavailable", world(pods=(pod("prefill", weights=Weights.FAILED),)), None),
    ("Progressing", "False", "UpToDate", HEALTHY, None),
    ("Progressing", "False", "PauseAnnotation", world(meta=PAUSE), None),
    ("Progressing", "False", "NotAccepted", world(REFUSED), None),
    ("Progressing", "True", "Deleting", HEALTHY, Failure(Reason.DELETING, "old child", refused=False)),
    ("Progressing", "False", "InternalError", HEALTHY, Failure(Reason.INTERNAL_ERROR, "bug", refused=False)),
    ("Progressing", "True", "RollingOut", world(stored=False, **NOTHING), None),
    ("Progressing", "True", "RollingOut", world(deployments=(deployment("decode", observed=False),)), None),
    ("Progressing", "True", "RollingOut", world(deployments=(deployment("decode", updated=0),)), None),
    ("Progressing", "True", "ReplicasStarting", world(deployments=(deployment("decode", ready=0),)), None),
    ("Progressing", "True", "ReplicasDraining", world(pods=(pod("decode", terminating=True),)), None),
    ("Progressing", "False", "Unschedulable",
     world(pods=(pod("decode", ready=False, trouble=Trouble(Reason.UNSCHEDULABLE, "0/1 nodes")),)), None),
    ("Progressing", "False", "ImageUnavailable",
     world(pods=(pod("", ready=False, trouble=Trouble(Reason.IMAGE_UNAVAILABLE, "gateway image")),)), None),
    ("Progressing", "False", "OutOfMemory",
     world(pods=(pod("decode", ready=False, trouble=Trouble(Reason.OUT_OF_MEMORY, "killed")),)), None),
    ("ModelReady", "False", "WeightsLoading", world(pods=(pod(""),)), None),
    ("Progressing", "False", "PodsRefused",
     world(deployments=(deployment("decode", trouble=Trouble(Reason.PODS_REFUSED, "exceeded quota")),)), None),
    ("ModelReady", "False", "Quantizing", quantizing(), None),
    ("ModelReady", "False", "QuantizeFailed", quantizing(failed=True), None),
    ("ModelReady", "False", "WeightsUnavailable", quantizing(trouble=NO_IMAGE), None),
    ("Progressing", "True", "Quantizing", quantizing(), None),
    ("Progressing", "False", "QuantizeFailed", quantizing(failed=True), None),
    ("Progressing", "False", "WeightsUnavailable", quantizing(trouble=NO_IMAGE), None),
    ("Progressing", "False", "OutOfMemory",
     quantizing(pods=(pod("decode", ready=False, trouble=Trouble(Reason.OUT_OF_MEMORY, "killed")),)), None),
    ("Progressing", "False", "PodsRefused",
     quantizing(failed=True, deployments=(deployment("decode", trouble=Trouble(Reason.PODS_REFUSED, "quota")),)), None),
    ("Available", "True", "Serving", quantizing(failed=True), None),
    ("Available", "False", "WeightsUnavailable", quantizing(trouble=NO_IMAGE, stored=False, **NOTHING), None),
    ("Available", "True", "Serving", HEALTHY, None),
    ("Available", "False", "NotAccepted", world(REFUSED, stored=False, **NOTHING), None),
    ("Available", "False", "GatewayNotReady", world(deployments=(deployment("", ready=0),)), None),
    ("Available", "False", "PrefillNotReady", world(pods=(pod("decode"),)), None),
    ("Available", "False", "DecodeNotReady", world(pods=(pod("prefill"), pod("decode", ready=False))), None),
    ("Available", "False", "DecodeNotReady", world(pods=(pod("prefill"), pod("decode", terminating=True))), None),
    ("Available", "False", "AggregatedNotReady", world({"topology": "Aggregated"}, pods=()), None),
    ("Available", "True", "Serving", world(REFUSED), None),
    ("ObjectivesMet", "Unknown", "NoObjectives", HEALTHY, None),
    ("ObjectivesMet", "Unknown", "NotMeasured", world({"objectives": {"timeToFirstToken": "1s"}}), None),
    ("ObjectivesMet", "Unknown", "NotAccepted", world(REFUSED), None),
    ("ScalingActive", "True", "ModeAuto", HEALTHY, None),
    ("ScalingActive", "False", "ModeOff", world({"autoscaling": {"mode": "Off"}}), None),
    ("ScalingActive", "False", "ModeRecommend", world({"autoscaling": {"mode": "Recommend"}}), None),
    ("ScalingActive", "False", "PauseAnnotation", world(meta=PAUSE), None),
    ("ScalingActive", "Unknown", "NotAccepted", world(REFUSED), None),
    ("Paused", "False", "NotPaused", HEALTHY, None),
    ("Paused", "True", "PauseAnnotation", world(meta=PAUSE), None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "truth", "reason", "snapshot", "failure"), TABLE)
def test_rows(kind: str, truth: str, reason: str, snapshot: Snapshot, failure: Failure | None) -> None:
    found = {
        verdict.type: verdict for verdict in verdicts(snapshot, plan(snapshot, quantize_image="quantize:1"), failure)
    }[ConditionType(kind)]
    assert (found.status, found.reason) == (truth, reason), found.message
    assert found.message


def test_the_objectives_are_shown() -> None:
    snapshot = world({"objectives": {"timeToFirstToken": "500ms", "timePerOutputToken": "50ms", "attainment": 97.5}})
    found = next(v for v in verdicts(snapshot, plan(snapshot), None) if v.type is ConditionType.OBJECTIVES_MET)
    assert "TTFT 500ms, TPOT 50ms for 97.5 % of requests over 5m" in found.message


def test_a_refusal_says_that_the_old_spec_serves_on() -> None:
    snapshot = world(REFUSED)
    message = verdicts(snapshot, plan(snapshot), None)[0].message
    assert "h2000" in message
    assert "last accepted spec stays in force" in message


def test_roles_are_counted_by_what_pods_do_now() -> None:
    flipped = replace(pod("prefill"), role="decode")
    snapshot = world(pods=(pod("prefill"), flipped, pod("decode", ready=False), pod("decode", terminating=True)))
    found = Status.read(status(snapshot, plan(snapshot), None, NOW))
    assert found.decode is not None
    assert found.prefill is not None
    assert (found.decode.ready, found.decode.starting, found.decode.draining) == (1, 1, 1)
    assert (found.prefill.ready, found.prefill.revision) == (1, "r1")
    assert (found.ratio, found.ready) == ("1:1", "2/2")


def test_a_new_service_wants_what_it_will_be_created_with() -> None:
    snapshot = world(stored=False, **NOTHING)
    found = status(snapshot, plan(snapshot), None, NOW)
    assert (found["prefill"]["desired"], found["decode"]["desired"]) == (CREATED_WITH, CREATED_WITH)


def test_the_same_world_gives_the_same_status_whenever_it_is_computed() -> None:
    first = status(HEALTHY, plan(HEALTHY), None, NOW)
    again = replace(HEALTHY, service={**HEALTHY.service, "status": first})
    assert status(again, plan(again), None, NOW + timedelta(hours=1)) == first


def test_a_transition_time_moves_with_the_status_alone() -> None:
    before = status(HEALTHY, plan(HEALTHY), None, NOW)
    changed = replace(world(pods=(pod("decode"),)), service={**HEALTHY.service, "status": before})
    later = NOW + timedelta(hours=1)
    times = {c["type"]: c["lastTransitionTime"] for c in status(changed, plan(changed), None, later)["conditions"]}
    assert times["Available"] == "2026-01-01T01:00:00Z"
    assert times["Accepted"] == times["Paused"] == "2026-01-01T00:00:00Z"


OUT_OF_MEMORY = Trouble(Reason.OUT_OF_MEMORY, "container engine was killed")
KILLED = world(pods=(*HEALTHY.pods, pod("decode", ready=False, trouble=OUT_OF_MEMORY)))


def moved(before: Snapshot, after: Snapshot) -> list[EventReason]:
    old = status(before, plan(before), None, NOW)
    held = replace(after, service={**after.service, "status": old})
    return [note.reason for note in transitions(previous_conditions(held.service), status(held, plan(held), None, NOW))]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (HEALTHY, HEALTHY, []),
        (HEALTHY, world(pods=()), [EventReason.UNAVAILABLE]),
        (world(pods=()), HEALTHY, [EventReason.AVAILABLE]),
        (HEALTHY, world(REFUSED), [EventReason.REJECTED]),
        (world(REFUSED), HEALTHY, [EventReason.ACCEPTED]),
        (world(REFUSED), world({"accelerator": "h3000"}), [EventReason.REJECTED]),
        (HEALTHY, world(meta=PAUSE), [EventReason.PAUSED]),
        (world(meta=PAUSE), HEALTHY, [EventReason.RESUMED]),
        (HEALTHY, KILLED, [EventReason.OUT_OF_MEMORY]),
        (KILLED, KILLED, []),
        (KILLED, HEALTHY, []),
    ],
)
def test_events_tell_transitions(before: Snapshot, after: Snapshot, told: list[EventReason]) -> None:
    assert moved(before, after) == told


def test_a_new_service_is_not_told_to_be_unavailable() -> None:
    snapshot = world(stored=False, **NOTHING)
    first = status(snapshot, plan(snapshot), None, NOW)
    assert [note.reason for note in transitions({}, first)] == [EventReason.ACCEPTED]
