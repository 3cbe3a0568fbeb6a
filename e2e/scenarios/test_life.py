"""The operator's promises over a service's life: repairs, restarts, refusals, bounds, and nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.platform import EXAMPLES, SYSTEM_NAMESPACE, Platform, condition

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAME, NAMESPACE = "rehearsal", "life"


@pytest.fixture(scope="module")
def service(platform: Platform) -> Iterator[dict[str, Any]]:
    """The simulated service of docs/examples, which starts in seconds."""
    platform.apply(EXAMPLES / "simulated.yaml", NAMESPACE)
    yield platform.wait_available(NAME, NAMESPACE)
    platform.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def pod_uids(platform: Platform) -> set[str]:
    """The service's pods, without those that are leaving."""
    pods = platform.items("pod", NAMESPACE, f"serving.steelyard.dev/service={NAME}")
    return {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def patch(platform: Platform, spec: dict[str, Any]) -> None:
    platform.kubectl(
        "patch", "inferenceservice", NAME, "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"spec": spec})
    )


def replicas(platform: Platform, role: str) -> int:
    return int(platform.get("deployment", f"{NAME}-{role}", NAMESPACE)["spec"]["replicas"])


def hold(platform: Platform, role: str, number: int) -> None:
    """Bring a role to exactly this many replicas, as asked for, not yet as ready."""
    patch(platform, {role: {"replicas": {"min": number, "max": number}}})
    platform.wait_for("the scale to follow", lambda: replicas(platform, role) == number, 60)


def test_a_deleted_child_comes_back(platform: Platform, service: dict[str, Any]) -> None:
    before = platform.get("service", NAME, NAMESPACE)["metadata"]["uid"]
    platform.kubectl("delete", "service", NAME, "-n", NAMESPACE)

    def back() -> bool:
        found = platform.get("service", NAME, NAMESPACE)
        return bool(found) and found["metadata"]["uid"] != before

    platform.wait_for("the deleted Service to come back", back, 60)


def test_an_edited_child_is_put_back(platform: Platform, service: dict[str, Any]) -> None:
    edit = [{"op": "replace", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 7}]
    platform.kubectl("patch", "deployment", f"{NAME}-decode", "-n", NAMESPACE, "--type=json", "-p", json.dumps(edit))

    def restored() -> bool:
        pod = platform.get("deployment", f"{NAME}-decode", NAMESPACE)["spec"]["template"]["spec"]
        return bool(pod["terminationGracePeriodSeconds"] != 7)

    platform.wait_for("the edited Deployment to be put back", restored, 60)
    platform.wait_available(NAME, NAMESPACE)


def test_a_restarted_operator_continues_and_rolls_nothing(platform: Platform, service: dict[str, Any]) -> None:
    platform.wait_available(NAME, NAMESPACE)
    platform.kubectl("rollout", "status", "deployment", "-n", NAMESPACE, "--timeout=120s")
    before = pod_uids(platform)
    selector = "app.kubernetes.io/name=steelyard"
    old = {pod["metadata"]["uid"] for pod in platform.items("pod", SYSTEM_NAMESPACE, selector)}
    assert old, "the operator's pods carry the label app.kubernetes.io/name=steelyard"
    platform.kubectl("delete", "pod", "-n", SYSTEM_NAMESPACE, "-l", selector, "--grace-period=0", "--force")
    patch(platform, {"decode": {"replicas": {"min": 2, "max": 4}}})  # while no operator is there
    platform.wait_for(
        "the new operator to raise decode to its new minimum", lambda: replicas(platform, "decode") == 2, 120
    )
    assert before <= pod_uids(platform), "a pod was replaced by a restart of the operator"
    patch(platform, {"decode": {"replicas": {"min": 1, "max": 1}}})
    platform.wait_for("decode to follow its maximum down", lambda: replicas(platform, "decode") == 1, 60)


def test_pods_that_are_deleted_while_they_start_leave_at_once(platform: Platform, service: dict[str, Any]) -> None:
    """Their grace period is minutes, for running requests; a signal lost in the first instant would use all of it."""
    platform.wait_available(NAME, NAMESPACE)
    decode = f"serving.steelyard.dev/service={NAME},serving.steelyard.dev/pool=decode"
    for number in (3, 1) * 6:  # each time, pods are told to leave at another instant of their start
        hold(platform, "decode", number)
    platform.wait_for("the others to leave", lambda: len(platform.items("pod", NAMESPACE, decode)) == 1, 120)


def test_an_invalid_spec_is_refused_and_the_old_children_stay(platform: Platform, service: dict[str, Any]) -> None:
    before = pod_uids(platform)
    patch(platform, {"accelerator": "no-such-accelerator"})

    def refused() -> dict[str, Any] | None:
        found = platform.get("inferenceservice", NAME, NAMESPACE)
        return found if condition(found, "Accepted") == "False" else None

    found = platform.wait_for("Accepted=False", refused, 60)
    message = next(c["message"] for c in found["status"]["conditions"] if c["type"] == "Accepted")
    assert "no-such-accelerator" in message
    assert "accelerator" in message

    def told() -> bool:
        events = platform.items("event", NAMESPACE)
        return any(e["reason"] == "Rejected" and "no-such-accelerator" in (e["message"] or "") for e in events)

    platform.wait_for("an event that tells the refusal", told, 30)
    assert before <= pod_uids(platform)
    patch(platform, {"accelerator": "h200"})
    platform.wait_available(NAME, NAMESPACE)


def test_a_spec_against_the_schema_never_arrives(platform: Platform, service: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="min"):
        patch(platform, {"prefill": {"replicas": {"min": 5, "max": 2}}})


def test_nothing_is_left_of_a_deleted_service(platform: Platform, service: dict[str, Any]) -> None:
    kinds = "deployment,service,configmap,serviceaccount,role,rolebinding,networkpolicy,poddisruptionbudget,controllerrevision,pod"
    selector = f"serving.steelyard.dev/service={NAME}"
    assert platform.items(kinds, NAMESPACE, selector)
    platform.kubectl("delete", "inferenceservice", NAME, "-n", NAMESPACE)
    platform.wait_for("every child to go", lambda: not platform.items(kinds, NAMESPACE, selector), 120)
