"""A rollout during which the service misses its objectives waits, says by how much, and goes on when they are met again.

A real Prometheus judges. First the new spec is fine and a rush of long prompts comes amidst the rollout: it waits, and ends by
itself once the rush is over. Then the new spec moves prefill to an accelerator on which no prompt meets its objective, so the
first new pod is enough to see it; the old ones go on serving, and the earlier spec ends it. No request is lost in either.

Each role has two replicas, which are replaced one after another, 45 seconds apart at least: so long a rush has to be seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from steelyard.api.labels import PREFILL

from e2e.load import Bounds, Lengths, Outcome, Pattern, Shape, synthetic
from e2e.platform import Platform
from e2e.scaled import Look, Scaled, monitored
from e2e.stage import Stage, staged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

NAME, NAMESPACE, LOAD_SECONDS, REPLICAS = "wait", "rollout-pause", 2400, 4
# Prompts of 2,000 tokens a second. A replica reads two: three of them are late within seconds, and what comes a minute later
# still waits for less than the 40 s after which the load's clients give up.
RUSH, RUSH_SECONDS = 8, 300
ROLLOUT_SECONDS = 600  # for two replicas a role, one after another, on a slow machine
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
  prefill: {{replicas: {{min: 2, max: 2}}}}
  decode: {{replicas: {{min: 2, max: 2}}}}
  routing: {{replicas: 1, requestTimeout: 300s}}
  autoscaling: {{mode: "Off"}}
  rollout: {{pauseOnObjectiveLoss: true}}
"""


@pytest.fixture(scope="module")
def stage(platform: Platform) -> Iterator[Stage]:
    schedule = synthetic(Shape(Pattern.POISSON, rate=3), Lengths(200, 20, 0.2), LOAD_SECONDS, seed=1)
    manifests = "---".join((STEADY, WEAK, SERVICE))
    with monitored(platform), staged(platform, manifests, NAMESPACE, NAME, schedule) as found:
        yield found
    platform.kubectl("delete", "accelerator", "steady", "weak", "--ignore-not-found")


@pytest.fixture(scope="module")
def service(stage: Stage) -> Scaled:
    found = Scaled(stage.platform, NAMESPACE, NAME, REPLICAS)
    found.until("the objectives to be met", lambda look: look.condition("ObjectivesMet")[0] == "True")
    return found


def paused(look: Look) -> bool:
    return look.condition("Progressing")[1] == "RolloutPaused"


def in_place(look: Look) -> bool:
    return look.condition("Progressing")[1] == "UpToDate"


def test_it_goes_on_by_itself_once_the_objectives_are_met_again(stage: Stage, service: Scaled) -> None:
    rush = synthetic(Shape(Pattern.POISSON, rate=RUSH), Lengths(2000, 5, 0), RUSH_SECONDS, seed=2)
    first = service.look().staying.keys()
    stage.load.mark("another batch size")
    service.patch({"batching": {"maxSequences": 200}})
    service.until("the objectives to be met since", lambda look: look.rollout.get("objectivesWereMet"))
    with stage.probe(rush, bounds=Bounds(request=300, silence=300)) as more:
        held = service.until("the rollout to wait", paused)
        assert "requests of the last half minute met the objectives" in held.rollout["paused"]
        assert held.staying.keys() & first, "it waits amidst the way, not at its end"
        more.stop()
        rushed = more.result(seconds=300)
    stage.load.mark("no rush")
    done = service.until("the rollout to end by itself", in_place, ROLLOUT_SECONDS)
    assert not done.staying.keys() & first, "every engine was replaced"
    assert done.rollout == {}
    service.until("the event", lambda _: service.events("RolloutResumed"))
    assert not rushed.broken, rushed.explain()
    assert rushed.count(Outcome.COMPLETED) > 0
    stage.goes_on()


def test_the_earlier_spec_ends_a_rollout_that_waits(stage: Stage, service: Scaled) -> None:
    before = len(service.events("RolloutResumed"))
    old = {name for name in service.look().staying if f"-{PREFILL}-" in name}
    stage.load.mark("weak accelerator")
    service.patch({"prefill": {"accelerator": "weak"}})
    seen = service.until("the rollout to wait", paused)
    why = seen.rollout["paused"]
    assert "requests of the last half minute met the objectives and 97 % are asked" in why
    service.until("the event", lambda _: any(why in note for _, note in service.events("RolloutPaused")))
    assert old <= seen.staying.keys(), "no old prefill pod has gone for a new one"
    held = service.until("the Deployment to be held", lambda _: _spec(stage.platform).get("paused"))
    assert held.condition("Progressing") == ("False", "RolloutPaused")
    stage.goes_on()
    stage.load.mark("earlier spec")
    service.patch({"prefill": {"accelerator": None}})
    back = service.until("the earlier spec to be in place", in_place)
    assert {name for name in back.staying if f"-{PREFILL}-" in name} == old
    assert back.rollout == {}
    service.until("another event", lambda _: len(service.events("RolloutResumed")) > before)
    stage.goes_on()


def test_in_the_end_every_request_was_answered_once(stage: Stage) -> None:
    stage.load.stop()
    result = stage.load.result(seconds=90)
    assert not result.broken, result.explain()
    assert result.count(Outcome.COMPLETED) > 0


def _spec(platform: Platform) -> dict[str, object]:
    return dict(platform.get("deployment", f"{NAME}-{PREFILL}", NAMESPACE)["spec"])
