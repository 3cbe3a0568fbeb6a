"""Rollouts under load: both roles move together, a bad image costs nothing, and the earlier spec brings everything back.

One service of two prefill and four decode pods under one open-loop load. Another model means another kv-group, so old and new
pods cannot hand over to each other: at every moment enough of one group, or of both, must be there. A watch of pods computes
that after every event. In the end each request of the load has been answered once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from steelyard.api.labels import DECODE, KV_GROUP, POOL, PREFILL, REVISION, SERVICE

from e2e.departures import Served, listened
from e2e.load import Lengths, Outcome, Pattern, Shape, summarise, synthetic
from e2e.platform import Platform
from e2e.stage import Stage, staged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME, NAMESPACE = "roll", "rollout"
SIZES = {PREFILL: 2, DECODE: 4}
FLOOR = 1 - Fraction(1, 4)  # 25 % of four decode pods may be missing
SHAPE = "parameters: 500000000, layers: 24, hiddenSize: 896, attentionHeads: 14, kvHeads: 2, headDimension: 64"
MODEL, OTHER_MODEL = "hf://example/half-a-billion", "hf://example/half-a-billion@second"
MANIFESTS = f"""
apiVersion: serving.steelyard.dev/v1alpha1
kind: Accelerator
metadata: {{name: rolling}}
spec:  # a step takes 40 ms for the weights of the model below
  vendor: test
  memoryBandwidth: 33.0e+9
  peak: {{bf16: 10.0e+12}}
---
apiVersion: serving.steelyard.dev/v1alpha1
kind: InferenceService
metadata: {{name: {NAME}}}
spec:
  model: {{uri: "{MODEL}", contextLength: 4096, shape: {{{SHAPE}}}}}
  engine: {{name: simulated}}
  accelerator: rolling
  prefill: {{replicas: {{min: 2, max: 2}}}}
  decode: {{replicas: {{min: 4, max: 4}}}}
  routing: {{replicas: 1, requestTimeout: 60s}}
"""
LOAD_SECONDS = 600
SELECTOR = f"{SERVICE}={NAME}"


@dataclass(frozen=True)
class Rolled:
    """The service under load, and what its pods could serve."""

    stage: Stage
    served: Served

    def patch(self, spec: dict[str, Any]) -> None:
        """Change the spec."""
        text = json.dumps({"spec": spec})
        where = ("inferenceservice", NAME, "-n", NAMESPACE)
        self.stage.platform.kubectl("patch", *where, "--type=merge", "-p", text)

    def status(self) -> dict[str, Any]:
        """The status of the present generation, else nothing."""
        body = self.stage.platform.get("inferenceservice", NAME, NAMESPACE)
        found: dict[str, Any] = body.get("status", {})
        return found if found.get("observedGeneration") == body["metadata"]["generation"] else {}

    def progressing(self) -> tuple[str, str]:
        """Reason and message of the condition."""
        conditions = self.status().get("conditions", [])
        return next(((c["reason"], c["message"]) for c in conditions if c["type"] == "Progressing"), ("", ""))

    def pods(self) -> list[dict[str, Any]]:
        """The engines that are not leaving."""
        found = self.stage.platform.items("pod", NAMESPACE, f"{SELECTOR},{POOL}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def labels(self, label: str) -> Counter[str]:
        """How many engines carry each value of a label."""
        return Counter(pod["metadata"]["labels"][label] for pod in self.pods())

    def until(self, what: str, holds: Any, seconds: float = 120) -> None:
        """Wait until it holds."""
        self.stage.platform.wait_for(what, holds, seconds)

    def is_over(self) -> bool:
        """Whether everything wanted runs, nothing is being replaced, and Deployments keep the user's own bounds."""
        deployments = self.stage.platform.items("deployment", NAMESPACE, f"{SELECTOR},{POOL}")
        bounds = [one["spec"]["strategy"]["rollingUpdate"] for one in deployments]
        at_rest = bounds == [{"maxSurge": "25%", "maxUnavailable": "25%"}] * len(SIZES)
        return at_rest and self.progressing()[0] == "UpToDate" and "rollout" not in self.status()


@pytest.fixture(scope="module")
def rolled(platform: Platform) -> Iterator[Rolled]:
    schedule = synthetic(Shape(Pattern.POISSON, rate=3), Lengths(200, 30, 0.3), LOAD_SECONDS, seed=1)
    served = Served(SIZES)
    with (
        staged(platform, MANIFESTS, NAMESPACE, NAME, schedule) as stage,
        listened(platform, NAMESPACE, SELECTOR, served),
    ):
        stage.platform.wait_for("the watch to see every pod", lambda: served.now() == 1, 30)
        yield Rolled(stage, served)
    platform.kubectl("delete", "accelerator", "rolling", "--ignore-not-found")


def undisturbed(rolled: Rolled, floor: Fraction) -> None:
    """No request broke, all of them go on being answered, and enough pods that can work together were there all the while."""
    rolled.stage.goes_on()
    assert rolled.stage.broken() == 0
    assert rolled.served.least is not None
    assert rolled.served.least >= floor
    assert not rolled.served.ended.is_set()


def test_another_model_moves_both_roles_together(rolled: Rolled) -> None:
    [before] = rolled.labels(KV_GROUP)
    rolled.stage.load.mark("another model")
    rolled.served.begin()
    rolled.patch({"model": {"uri": OTHER_MODEL}})
    rolled.until(
        "status to tell how far it is", lambda: {"prefill", "decode"} <= rolled.status().get("rollout", {}).keys()
    )
    rolled.until("the rollout to be over", rolled.is_over)
    assert before not in rolled.labels(KV_GROUP)
    assert rolled.labels(POOL) == SIZES
    undisturbed(rolled, FLOOR)


def test_a_bad_image_costs_no_replica_and_is_named(rolled: Rolled) -> None:
    """The old pods all stay, though one decode pod might be missing; the earlier spec then finds them as they were."""
    good = {pod["metadata"]["uid"] for pod in rolled.pods()}
    rolled.stage.load.mark("bad image")
    rolled.served.begin()
    rolled.patch({"engine": {"image": "steelyard/engine:no-such-tag"}})
    rolled.until("the image to be named", lambda: rolled.progressing()[0] == "ImageUnavailable")
    [message] = {rolled.progressing()[1]}
    assert "steelyard/engine:no-such-tag" in message
    assert "prefill 0/2, decode 0/4" in message
    assert "go on serving" in message
    rolled.stage.goes_on()
    surge = rolled.labels(POOL) - Counter(SIZES)
    assert surge == {PREFILL: 1, DECODE: 1}, "it stops at the first of each role"
    rolled.patch({"engine": {"image": None}})
    rolled.until("the earlier spec to be in place", rolled.is_over)
    assert {pod["metadata"]["uid"] for pod in rolled.pods()} == good, "nothing that served was replaced"
    undisturbed(rolled, Fraction(1))


def test_the_earlier_spec_applied_amidst_a_rollout_takes_it_back(rolled: Rolled) -> None:
    [now] = rolled.labels(KV_GROUP)
    rolled.stage.load.mark("back amidst")
    rolled.served.begin()
    rolled.patch({"model": {"uri": MODEL}})
    rolled.until(
        "the first new decode pod to serve", lambda: rolled.status().get("rollout", {}).get("decode", "0/4") != "0/4"
    )
    rolled.patch({"model": {"uri": OTHER_MODEL}})
    rolled.until("it to be taken back", rolled.is_over)
    assert set(rolled.labels(KV_GROUP)) == {now}
    assert rolled.labels(POOL) == SIZES
    assert len(rolled.labels(REVISION)) == len(SIZES)
    undisturbed(rolled, FLOOR)


def test_in_the_end_every_request_was_answered_once(rolled: Rolled) -> None:
    rolled.stage.load.stop()
    result = rolled.stage.load.result(seconds=60)
    assert not result.broken, result.explain()
    assert summarise(result).duplicated == 0
    sent = [one for one in result.records if one.sent is not None]
    assert len(sent) == result.count(Outcome.COMPLETED)
