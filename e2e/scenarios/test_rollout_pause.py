"""A rollout that makes the service miss its objectives waits, says by how much, and ends when the earlier spec is applied.

A real Prometheus judges. The new spec moves prefill to an accelerator on which no prompt meets its objective, so the first
new pod is enough to see it; the old one goes on serving and no request is lost.
"""

from __future__ import annotations

import pytest
from steelyard.api.labels import PREFILL

from e2e.load import Lengths, Outcome, Pattern, Shape, synthetic
from e2e.platform import Platform
from e2e.scaled import Scaled, monitored
from e2e.stage import staged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

NAME, NAMESPACE, LOAD_SECONDS, REPLICAS = "wait", "rollout-pause", 1000, 3
ACCELERATOR = """
apiVersion: serving.steelyard.dev/v1alpha1
kind: Accelerator
metadata: {{name: {name}}}
spec: {{vendor: test, memoryBandwidth: 33.0e+9, peak: {{bf16: {peak}}}}}
"""
STEADY = ACCELERATOR.format(name="steady", peak="10.0e+12")  # a prompt of 200 tokens takes 50 ms
WEAK = ACCELERATOR.format(name="weak", peak="0.1e+12")  # and here 2 s: in that time the other one serves six
SERVICE = f"""
apiVersion: serving.steelyard.dev/v1alpha1
kind: InferenceService
metadata: {{name: {NAME}}}
spec:
  model:
    uri: hf://example/half-a-billion
    contextLength: 4096
    shape: {{parameters: 500000000, layers: 24, hiddenSize: 896, attentionHeads: 14, kvHeads: 2, headDimension: 64}}
  engine: {{name: simulated}}
  accelerator: steady
  objectives: {{timeToFirstToken: 1s, attainment: 97}}
  prefill: {{replicas: {{min: 1, max: 1}}}}
  decode: {{replicas: {{min: 1, max: 1}}}}
  routing: {{replicas: 1, requestTimeout: 60s}}
  autoscaling: {{mode: "Off"}}
  rollout: {{pauseOnObjectiveLoss: true}}
"""


def test_a_rollout_waits_for_the_objectives_and_the_earlier_spec_ends_it(platform: Platform) -> None:
    schedule = synthetic(Shape(Pattern.POISSON, rate=3), Lengths(200, 20, 0.2), LOAD_SECONDS, seed=1)
    manifests = "---".join((STEADY, WEAK, SERVICE))
    with monitored(platform), staged(platform, manifests, NAMESPACE, NAME, schedule) as stage:
        service = Scaled(platform, NAMESPACE, NAME, REPLICAS)
        service.until("the objectives to be met", lambda look: look.condition("ObjectivesMet")[0] == "True")
        old = {name for name, pod in service.look().staying.items() if f"-{PREFILL}-" in name}
        stage.load.mark("weak accelerator")
        service.patch({"prefill": {"accelerator": "weak"}})
        paused = service.until("the rollout to wait", lambda look: look.condition("Progressing")[1] == "RolloutPaused")
        why = paused.status["rollout"]["paused"]
        assert "requests of the last half minute met the objectives and 97 % are asked" in why
        [event] = service.events("RolloutPaused")
        assert why in event[1]
        assert old <= paused.staying.keys(), "no old prefill pod has gone for a new one"
        held = service.until("the Deployment to be held", lambda _: _spec(platform).get("paused"))
        assert held.condition("Progressing") == ("False", "RolloutPaused")
        stage.goes_on()
        stage.load.mark("earlier spec")
        service.patch({"prefill": {"accelerator": None}})
        back = service.until(
            "the earlier spec to be in place", lambda look: look.condition("Progressing")[1] == "UpToDate"
        )
        assert {name for name in back.staying if f"-{PREFILL}-" in name} == old
        assert "rollout" not in back.status
        assert [note for _, note in service.events("RolloutResumed")]
        stage.goes_on()
        stage.load.stop()
        result = stage.load.result(seconds=90)
        assert not result.broken, result.explain()
        assert result.count(Outcome.COMPLETED) > 0
    platform.kubectl("delete", "accelerator", "steady", "weak", "--ignore-not-found")


def _spec(platform: Platform) -> dict[str, object]:
    return dict(platform.get("deployment", f"{NAME}-{PREFILL}", NAMESPACE)["spec"])
