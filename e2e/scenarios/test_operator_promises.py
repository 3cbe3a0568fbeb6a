"""The running operator's promises about when it writes and when it does not: modes, pause, rest, quick edits, leadership."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from steelyard.api.labels import PAUSED, RENDER

from e2e.platform import EXAMPLES, SYSTEM_NAMESPACE, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAME = "rehearsal"
KINDS = "deployment,service,configmap,serviceaccount,role,rolebinding,networkpolicy,poddisruptionbudget"
SELECTOR = f"serving.steelyard.dev/service={NAME}"


class Life:
    """The simulated service of docs/examples in a namespace of the test's own."""

    def __init__(self, platform: Platform, namespace: str) -> None:
        self.platform = platform
        self.namespace = namespace

    def define(self, spec: dict[str, Any]) -> None:
        body = yaml.safe_load((EXAMPLES / "simulated.yaml").read_text())
        body["spec"] |= spec
        self.platform.apply(yaml.safe_dump(body), self.namespace)
        self.wait("the children to be there", lambda: len(self.platform.items("deployment", self.namespace)) == 3)

    def patch(self, spec: dict[str, Any]) -> None:
        text = json.dumps({"spec": spec})
        self.platform.kubectl("patch", "inferenceservice", NAME, "-n", self.namespace, "--type=merge", "-p", text)

    def annotate(self, key: str, value: str | None) -> None:
        change = f"{key}-" if value is None else f"{key}={value}"
        self.platform.kubectl("annotate", "inferenceservice", NAME, "-n", self.namespace, "--overwrite", change)

    def condition(self, kind: str) -> tuple[str, str]:
        status = self.platform.get("inferenceservice", NAME, self.namespace).get("status", {})
        return next(((c["status"], c["reason"]) for c in status.get("conditions", []) if c["type"] == kind), ("", ""))

    def replicas(self, role: str) -> int:
        return int(self.platform.get("deployment", f"{NAME}-{role}", self.namespace)["spec"]["replicas"])

    def scale(self, role: str, number: int) -> None:
        self.platform.kubectl("scale", "deployment", f"{NAME}-{role}", f"--replicas={number}", "-n", self.namespace)

    def grace(self, number: int | None = None) -> int:
        """The decode pods' grace period, after setting it by hand where a number is given."""
        if number is not None:
            patch = [{"op": "replace", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": number}]
            self.platform.kubectl(
                "patch", "deployment", f"{NAME}-decode", "-n", self.namespace, "--type=json", "-p", json.dumps(patch)
            )
        pod = self.platform.get("deployment", f"{NAME}-decode", self.namespace)["spec"]["template"]["spec"]
        return int(pod["terminationGracePeriodSeconds"])

    def ours(self) -> dict[str, Any]:
        """What shows a write of the operator's: the times of its field managers, and generations or versions."""
        text = self.platform.kubectl(
            "get", KINDS, "-n", self.namespace, "-l", SELECTOR, "-o", "json", "--show-managed-fields"
        )
        found: dict[str, Any] = {}
        for body in json.loads(text)["items"]:
            meta = body["metadata"]
            place = f"{body['kind']}/{meta['name']}"
            times = {e["manager"]: e.get("time") for e in meta["managedFields"] if e["manager"].startswith("steelyard")}
            found[place] = (times, meta.get("generation") or meta["resourceVersion"])
        return found

    def wait(self, what: str, holds: Callable[[], bool], seconds: float = 60) -> None:
        self.platform.wait_for(what, holds, seconds)

    def wait_for_a_look(self) -> None:
        """Wait until the operator has seen the present generation."""

        def seen() -> bool:
            body = self.platform.get("inferenceservice", NAME, self.namespace)
            return bool(body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"])

        self.wait("the operator to look", seen)


@pytest.fixture
def life(platform: Platform, namespace: str) -> Iterator[Life]:
    found = Life(platform, namespace)
    yield found
    platform.kubectl("delete", "inferenceservice", NAME, "-n", namespace, "--ignore-not-found")


def test_mode_off_leaves_replicas_to_others_and_auto_starts_from_what_runs(life: Life) -> None:
    """defilantech/LLMKube#1881 (B01): an autoscaler of the user's was reverted in every loop."""
    bounds = {"replicas": {"min": 1, "max": 2, "initial": 2}}
    life.define({"autoscaling": {"mode": "Off"}, "decode": bounds, "prefill": bounds})
    life.wait("initial to be written", lambda: life.replicas("decode") == 2)
    assert life.condition("ScalingActive") == ("False", "ModeOff")
    life.scale("decode", 3)
    life.scale("prefill", 1)
    life.patch({"routing": {"requestTimeout": "90s"}})  # the children are rendered and applied anew
    life.wait("the new children", lambda: life.grace() == 130)
    assert (life.replicas("decode"), life.replicas("prefill")) == (3, 1)
    life.patch({"autoscaling": {"mode": "Auto"}})
    life.wait("decode to be brought to its maximum", lambda: life.replicas("decode") == 2)
    assert life.replicas("prefill") == 1


def test_pause_is_honoured_first_and_shown(life: Life) -> None:
    life.define({})
    right = life.grace()
    life.annotate(PAUSED, "true")
    life.wait("the condition Paused", lambda: life.condition("Paused")[0] == "True")
    life.grace(7)
    life.patch({"routing": {"replicas": 3}})
    life.wait_for_a_look()
    assert life.grace() == 7
    assert life.platform.get("deployment", NAME, life.namespace)["spec"]["replicas"] == 2
    life.annotate(PAUSED, None)
    life.wait("the edit to be put back", lambda: life.grace() == right)
    life.wait(
        "the gateway to follow", lambda: life.platform.get("deployment", NAME, life.namespace)["spec"]["replicas"] == 3
    )
    assert life.condition("Paused")[0] == "False"


def test_at_rest_nothing_is_written(life: Life) -> None:
    """Repeated events of one generation write nothing (kubernetes-client/python#700, B14)."""
    life.define({})
    life.wait_for_a_look()
    time.sleep(3)
    before = life.ours()
    assert before
    for number in range(3):
        life.annotate("example.com/touched", str(number))
        time.sleep(1)
    life.patch({"autoscaling": {"budget": {"accelerators": 9}}})  # a spec that reaches no child
    life.wait_for_a_look()
    assert life.ours() == before


def test_quick_edits_end_in_the_last(life: Life) -> None:
    """nolar/kopf#698 (B11): three edits within a moment, whatever events arrive."""
    life.define({})
    for number in (2, 3, 4):
        life.patch({"decode": {"replicas": {"min": number, "max": 4}}})
    life.wait("the last minimum", lambda: life.replicas("decode") == 4)
    life.wait_for_a_look()


def test_a_new_rendering_on_request_changes_nothing_that_is_the_same(life: Life) -> None:
    life.define({})
    life.wait_for_a_look()
    time.sleep(2)
    before = life.ours()
    life.annotate(RENDER, "now")
    time.sleep(5)
    assert life.ours() == before
    revisions = life.platform.items("controllerrevision", life.namespace, SELECTOR)
    assert [revision["revision"] for revision in revisions] == [2]


def test_a_service_deleted_while_no_operator_runs_leaves_nothing(platform: Platform, life: Life) -> None:
    """Services hung in Terminating once their operator with its finalizers was uninstalled (zalando-incubator/kopf#75,
    ray-project/ray#21684; B07, B08): ours have none, and children go by their owner references."""
    life.define({})
    assert "finalizers" not in platform.get("inferenceservice", NAME, life.namespace)["metadata"]
    operator = platform.items("deployment", SYSTEM_NAMESPACE)[0]["metadata"]["name"]
    platform.kubectl("scale", "deployment", operator, "--replicas=0", "-n", SYSTEM_NAMESPACE)
    try:
        pods = "app.kubernetes.io/name=steelyard"
        life.wait("the operator to be gone", lambda: not platform.items("pod", SYSTEM_NAMESPACE, pods), 90)
        platform.kubectl("delete", "inferenceservice", NAME, "-n", life.namespace, "--timeout=60s")
        kinds = f"{KINDS},controllerrevision"
        life.wait("the children to go", lambda: not platform.items(kinds, life.namespace, SELECTOR), 90)
    finally:
        platform.kubectl("scale", "deployment", operator, "--replicas=2", "-n", SYSTEM_NAMESPACE)
        platform.kubectl("rollout", "status", f"deployment/{operator}", "-n", SYSTEM_NAMESPACE, "--timeout=120s")


def test_a_killed_leader_is_followed_by_the_other_replica(platform: Platform, life: Life) -> None:
    life.define({})

    def holder() -> str:
        leases = platform.items("lease", SYSTEM_NAMESPACE)
        return next((str(lease["spec"].get("holderIdentity") or "") for lease in leases), "")

    first = holder()
    assert first
    platform.kubectl("delete", "pod", first, "-n", SYSTEM_NAMESPACE, "--grace-period=0", "--force")
    life.wait("another replica to lead", lambda: holder() not in ("", first), 90)
    life.patch({"decode": {"replicas": {"min": 2, "max": 2}}})
    life.wait("the new leader to act", lambda: life.replicas("decode") == 2, 90)
