"""The autoscaler live: a real Prometheus, simulated engines under an open-loop load, and every request accounted for.

One service, one load: a burst of 25 seconds and then a trickle. The tests follow each other like one day: mode Off,
Recommend, Auto under the burst and an operator that dies in it, Prometheus gone and back, a node lost, and the way down. Beside
it stands a service that wants more than the cluster has. Engines keep the time of a slow accelerator, so that a small
machine is not the bottleneck.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import pytest
from rich.console import Console
from steelyard.api.labels import COMPONENT, GATEWAY_METRICS_PORT, GATEWAY_PORT, ROLE
from steelyard.api.labels import SERVICE as SERVICE_LABEL
from steelyard.observe.replicas import DELETION_COST

from charts.boards import BOARDS
from e2e import monitoring
from e2e.cluster import create
from e2e.cluster.local.cluster import LocalCluster
from e2e.faults import refused_from
from e2e.images.build import build_archives
from e2e.load import Bounds, Lengths, Outcome, Pattern, Running, Schedule, Shape, Spec, Target, start_load, synthetic
from e2e.load.arrivals import Arrival
from e2e.load.running import Launch
from e2e.platform import SYSTEM_NAMESPACE, Platform
from e2e.scaled import OPERATORS, Look, Scaled, monitored, ticks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

NAMESPACE, BUDGET = "autoscaler", 4
SCARCE_BUDGET = 8
NODE, OTHER_NODE = "node1", "node2"
SERVICE = """
apiVersion: serving.steelyard.dev/v1alpha1
kind: Accelerator
metadata: {{name: {name}}}
spec:  # a prompt of 600 tokens takes a third of a second
  vendor: test
  memoryBandwidth: 33.0e+9
  peak: {{bf16: 8.0e+12}}
  {resource}
---
apiVersion: serving.steelyard.dev/v1alpha1
kind: InferenceService
metadata: {{name: {name}}}
spec:
  model:
    uri: hf://example/half-a-billion
    contextLength: 4096
    shape: {{parameters: 500000000, layers: 24, hiddenSize: 896, attentionHeads: 14, kvHeads: 2, headDimension: 64}}
  engine: {{name: simulated}}
  accelerator: {name}
  objectives: {{timeToFirstToken: 1500ms, timePerOutputToken: 150ms}}
  prefill: {{replicas: {{min: 1, max: 8}}}}
  decode: {{replicas: {{min: 1, max: 2}}}}
  routing: {{replicas: 1, requestTimeout: 150s}}
  autoscaling: {{mode: "{mode}", roleChange: Never, budget: {{accelerators: {budget}}}}}
"""
ELASTIC = SERVICE.format(name="elastic", resource="", mode="Off", budget=BUDGET)
SCARCE = SERVICE.format(name="scarce", resource="resource: example.com/card", mode="Auto", budget=SCARCE_BUDGET)
BURST_SECONDS, WHOLE_SECONDS = 25.0, 1200.0
BURST_RATE = 28.0  # twice what the budget's replicas can do, whatever is thought of them before they are measured
SCARCE_RATE = 14.0  # the one replica that `scarce` has answers its burst within the clients' patience
TRICKLE_RATE = 0.5
STANDS_BY = "are to stand by beyond the need (spec.autoscaling.standby)"
BY_LOAD = "lose at most 1.0% of the last arrivals"  # with windows ten times as much


def burst(rate: float) -> Schedule:
    """A burst, and a trickle after it, which does not end before it is stopped."""
    lengths = Lengths(600, 20, 0.2)
    first = synthetic(Shape(Pattern.POISSON, rate=rate), lengths, BURST_SECONDS, seed=1)
    after = synthetic(Shape(Pattern.POISSON, rate=TRICKLE_RATE), lengths, WHOLE_SECONDS, seed=2)
    return (*first, *(Arrival(a.at + BURST_SECONDS, a.prompt_tokens, a.output_tokens) for a in after))


@dataclass
class Stage:
    """Both services and their loads."""

    platform: Platform
    launch: Launch
    elastic: Scaled
    scarce: Scaled
    loads: dict[str, Running] = field(default_factory=dict)
    ended: ExitStack = field(default_factory=ExitStack)

    def start(self, service: Scaled, schedule: Schedule, seed: int = 0) -> Running:
        """Put a service under a load, whose end is looked at by `account`. Another seed gives other prompts."""
        target = Target(f"http://{service.address}:{GATEWAY_PORT}", service.name)
        spec = Spec(target, schedule, Bounds(request=160, silence=150), title=service.name, seed=seed)
        run = start_load(spec, self.launch)
        return self.ended.enter_context(run)

    def settle(self, count: int) -> None:
        """Let so many ticks pass."""
        before = ticks(self.platform)
        self.platform.wait_for(f"{count} ticks", lambda: ticks(self.platform) >= before + count, 120)


@pytest.fixture(scope="module")
def stage(platform: Platform) -> Iterator[Stage]:
    """The services, a Prometheus that scrapes them, and an operator that reads it."""
    with monitored(platform) as launch:
        others = [node for node in platform.cluster.nodes if node != NODE]
        for node in others:  # of a cluster on which other scenarios were before
            platform.kubectl("cordon", node)
        platform.cluster.advertise(2)  # what the minima of `scarce` take
        platform.apply(f"{ELASTIC}\n---\n{SCARCE}", NAMESPACE)
        elastic, scarce = (
            Scaled(platform, NAMESPACE, "elastic", BUDGET),
            Scaled(platform, NAMESPACE, "scarce", SCARCE_BUDGET),
        )
        found = Stage(platform, launch, elastic, scarce)
        try:
            for service in (elastic, scarce):
                platform.wait_available(service.name, NAMESPACE)
            with found.ended:
                yield found
        finally:
            platform.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
            platform.kubectl("delete", "accelerator", "elastic", "scarce", "--ignore-not-found")
            advertise_again(platform)
            for node in platform.cluster.nodes:
                platform.kubectl("uncordon", node)


def advertise_again(platform: Platform) -> None:
    assert isinstance(platform.cluster, LocalCluster)
    platform.cluster.advertise(platform.cluster.specification()["accelerators"])


def account(run: Running, at_least: float) -> None:
    """End a load: every request of it was answered."""
    run.stop()
    result = run.result(seconds=200)
    assert not result.broken, result.explain()
    assert result.count(Outcome.COMPLETED) > at_least


def test_mode_off_measures_and_leaves_kubectl_scale_alone(stage: Stage) -> None:
    elastic = stage.elastic
    stage.loads["scarce"] = stage.start(stage.scarce, burst(SCARCE_RATE))
    stage.platform.kubectl("scale", "deployment/elastic-prefill", "-n", NAMESPACE, "--replicas=2")
    seen = elastic.until(
        "a tick that has measured the service", lambda look: look.condition("MetricsFresh")[0] == "True"
    )
    assert seen.asked == {"prefill": 2, "decode": 1}
    assert "decision" not in seen.status
    stage.platform.kubectl("scale", "deployment/elastic-prefill", "-n", NAMESPACE, "--replicas=1")


def test_recommend_says_what_it_would_do_and_changes_nothing(stage: Stage) -> None:
    elastic = stage.elastic
    elastic.mode("Recommend")
    stage.loads["elastic"] = stage.start(elastic, burst(BURST_RATE))
    seen = elastic.until("a recommendation of more prefill", lambda look: look.told("prefill 1→", applied=False))
    assert seen.asked == {"prefill": 1, "decode": 1}
    assert not any(decision["applied"] for decision in seen.status["history"])


def test_a_burst_takes_the_whole_budget_in_the_best_split_and_says_that_it_is_reached(stage: Stage) -> None:
    """Prompts are what arrives: all but one replica read them."""
    elastic = stage.elastic
    elastic.mode("Auto")
    elastic.until("the whole budget", lambda look: look.asked == {"prefill": BUDGET - 1, "decode": 1})
    seen = elastic.until("the limit", lambda look: limited(elastic, "budget"))
    assert seen.told("prefill 1→", applied=True)
    assert seen.status["decision"]["because"]


def limited(service: Scaled, words: str) -> bool:
    """Whether that limit was ever told: the condition goes with the burst, and what looks for it may come too late."""
    return any(words in note for _, note in service.events("ScalingLimited"))


def test_an_operator_killed_in_mid_scale_is_followed_by_one_that_goes_on(stage: Stage) -> None:
    """Its successor knows nothing but what runs and what status keeps: nothing that is there or coming is taken back.

    The step is one of the spec's, so that it does not matter how much of the burst is left.
    """
    # What `scarce` is to show takes a minute of an operator that has seen it begin.
    stage.scarce.until("the withdrawal", lambda look: stage.scarce.events("ReplicaWithdrawn"))
    more = replace(stage.elastic, budget=BUDGET + 1)
    asks_for(more, prefill=BUDGET)
    before = more.until("one replica more", lambda look: len(look.staying) == more.budget == sum(look.asked.values()))
    stage.platform.kubectl("delete", "pods", "-n", SYSTEM_NAMESPACE, "-l", OPERATORS, "--grace-period=0", "--force")
    stage.platform.wait_for("another operator that decides", lambda: ticks(stage.platform) >= 2)
    seen = more.until("every replica to be ready", lambda look: look.status["prefill"]["ready"] == BUDGET)
    assert seen.asked == before.asked
    assert set(before.staying) <= set(seen.staying)
    asks_for(replace(more, budget=BUDGET), prefill=BUDGET - 1)
    more.until("the budget of before", lambda look: len(look.pods) == BUDGET == sum(look.asked.values()))


def asks_for(service: Scaled, prefill: int) -> None:
    """Let the service have its budget, and at least so many replicas that prefill."""
    budget = {"accelerators": service.budget}
    service.patch({"prefill": {"replicas": {"min": prefill}}, "autoscaling": {"budget": budget}})


def test_from_auto_to_off_and_back_no_replica_is_dropped(stage: Stage) -> None:
    elastic = stage.elastic
    before = elastic.look()
    for mode in ("Off", "Auto"):
        enter(elastic, mode)
        stage.settle(2)
        seen = elastic.look()
        assert seen.asked == before.asked
        assert set(seen.staying) == set(before.staying)


def enter(service: Scaled, mode: str) -> None:
    """Change the mode, and wait until the operator has taken note."""
    service.mode(mode)
    service.until(f"mode {mode}", lambda look: look.condition("ScalingActive")[1] == f"Mode{mode}")


def test_replicas_without_a_node_are_withdrawn_with_the_schedulers_words(stage: Stage) -> None:
    """Its burst asked for more accelerators than the cluster has; they were waited for, and then given up."""
    scarce = stage.scarce
    scarce.until("the withdrawal", lambda look: scarce.events("ReplicaWithdrawn"))
    assert all(
        "Insufficient steelyard.dev/simulated-accelerator" in note for _, note in scarce.events("ReplicaWithdrawn")
    )
    scarce.until("only those that have a node", lambda look: look.asked == {"prefill": 1, "decode": 1})
    scarce.until("the limit", lambda look: limited(scarce, "no room"))
    scarce.until("the others to be gone", lambda look: len(look.pods) == sum(look.asked.values()))
    account(stage.loads["scarce"], at_least=SCARCE_RATE * BURST_SECONDS)


def test_without_prometheus_it_holds_and_says_so(stage: Stage) -> None:
    elastic = stage.elastic
    before = elastic.look().asked
    monitoring.stop(stage.platform)
    try:
        lost = ("False", "PrometheusUnreachable")
        seen = elastic.until("MetricsFresh=False", lambda look: look.condition("MetricsFresh") == lost)
        assert seen.asked["prefill"] >= before["prefill"]
        held = elastic.until(
            "the decision to hold", lambda look: look.status["decision"]["limitedBy"] == "MetricsStale"
        )
        assert held.asked == seen.asked
    finally:
        monitoring.restart(stage.platform)
    elastic.until("fresh metrics", lambda look: look.condition("MetricsFresh")[0] == "True")


def test_replicas_of_a_lost_node_are_replaced_elsewhere(stage: Stage) -> None:
    elastic, platform = stage.elastic, stage.platform
    advertise_again(platform)
    assert isinstance(platform.cluster, LocalCluster)
    archives = list(build_archives(say=lambda text: None).values())
    create(platform.cluster.name, nodes=2, archives=archives, console=Console(file=sys.__stderr__))
    platform.kubectl("uncordon", OTHER_NODE)
    elastic.patch({"prefill": {"replicas": {"min": 2, "max": 2}}})  # leaves room in the budget
    elastic.until("two prefill replicas", lambda look: len(look.pods) == 3 == sum(look.asked.values()))
    [gone, *_] = [name for name, pod in elastic.look().pods.items() if pod["metadata"]["labels"][ROLE] == "prefill"]
    platform.kubectl("cordon", NODE)
    try:
        platform.kubectl("delete", "pod", gone, "-n", NAMESPACE)
        placed = elastic.until("a prefill replica on the other node", lambda look: on(look, OTHER_NODE, ready=True))
    finally:
        platform.kubectl("uncordon", NODE)
    assert placed.asked == {"prefill": 2, "decode": 1}
    platform.cluster.stop_kubelet(OTHER_NODE)
    try:
        seen = elastic.until("another in its place", lambda look: look.asked == {"prefill": 3, "decode": 1})
        assert on(seen, OTHER_NODE, ready=False)
        elastic.until("two that are ready", lambda look: len(on(look, NODE, ready=True)) == 2)
    finally:
        platform.cluster.start_kubelet(OTHER_NODE)
    elastic.until("one of three to leave", lambda look: look.asked == {"prefill": 2, "decode": 1})


def on(look: Look, node: str, ready: bool) -> list[str]:
    """Prefill replicas of a node that are ready, or are not."""
    return [
        name
        for name, pod in look.staying.items()
        if pod["spec"].get("nodeName") == node
        and pod["metadata"]["labels"][ROLE] == "prefill"
        and any(c["type"] == "Ready" and (c["status"] == "True") is ready for c in pod["status"]["conditions"])
    ]


def test_the_replica_with_the_least_work_goes_first(stage: Stage) -> None:
    """Of two that decode the older has little to do. A ReplicaSet left to itself would take the younger."""
    elastic, platform = stage.elastic, stage.platform
    elastic.patch({"decode": {"replicas": {"min": 2, "max": 2}}})
    elastic.until("two decode replicas", lambda look: look.status["decode"]["ready"] == 2)
    enter(elastic, "Off")
    decoding = {n: p for n, p in elastic.look().staying.items() if p["metadata"]["labels"][ROLE] == "decode"}
    idle, busy = sorted(decoding, key=lambda name: decoding[name]["metadata"]["creationTimestamp"])
    with relabelled(platform, idle):
        long = stage.start(elastic, synthetic(Shape(Pattern.CONSTANT, rate=2), Lengths(20, 1500), 3, seed=3))
        platform.wait_for("streams that are scraped", lambda: (running(platform, busy) or 0) >= 4)
    platform.wait_for("the other to have little", lambda: (running(platform, idle) or 0) < 3)
    elastic.patch({"decode": {"replicas": {"min": 1, "max": 1}}})
    elastic.mode("Auto")
    seen = elastic.until("one decode replica", lambda look: look.asked["decode"] == 1 and look.roles["decode"] == 1)
    assert busy in seen.staying
    assert idle not in seen.staying
    if idle in seen.pods:
        assert int(seen.pods[idle]["metadata"]["annotations"][DELETION_COST]) < 0
    result = long.result(seconds=200)
    assert not result.broken, result.explain()


@contextmanager
def relabelled(platform: Platform, pod: str) -> Iterator[None]:
    """Keep new sequences away from a decode replica, by hand."""
    platform.kubectl("label", "pod", pod, "-n", NAMESPACE, "--overwrite", f"{ROLE}=prefill")
    try:
        yield
    finally:
        platform.kubectl("label", "pod", pod, "-n", NAMESPACE, "--overwrite", f"{ROLE}=decode")


def running(platform: Platform, pod: str) -> float | None:
    """The sequences of a replica as Prometheus has them; None where it has nothing."""
    return monitoring.value(platform, f'vllm:num_requests_running{{namespace="{NAMESPACE}", pod="{pod}"}}')


def test_where_gateways_do_not_tell_their_arrivals_the_load_alone_asks_for_replicas(stage: Stage) -> None:
    """As with another router: what is left are rates between scrapes, of which a tenth as much may be lost."""
    elastic, platform = stage.elastic, stage.platform
    one = {"replicas": {"min": 1, "max": 1}}
    elastic.patch({"prefill": one, "decode": one})
    elastic.until("one replica each", lambda look: len(look.pods) == 2 == sum(look.asked.values()))
    [gateway] = platform.items("pods", NAMESPACE, f"{SERVICE_LABEL}=elastic,{COMPONENT}=gateway")
    operators = [pod["status"]["podIP"] for pod in platform.items("pods", SYSTEM_NAMESPACE, OPERATORS)]
    assert isinstance(platform.cluster, LocalCluster)
    node = platform.cluster.machine(gateway["spec"]["nodeName"])
    with refused_from(node, gateway["status"]["podIP"], GATEWAY_METRICS_PORT, operators):
        elastic.patch({"prefill": {"replicas": {"min": 1, "max": BUDGET - 1}}})
        again = stage.start(elastic, burst(BURST_RATE), seed=1)
        whole = {"prefill": BUDGET - 1, "decode": 1}
        seen = elastic.until("the whole budget", lambda look: look.asked == whole and by_load(look))
        assert seen.condition("MetricsFresh")[0] == "True"
    account(again, at_least=1)


def by_load(look: Look) -> bool:
    """Whether the last change was decided without the gateways' windows."""
    return BY_LOAD in " ".join(look.status["history"][0]["because"])


def test_a_lower_maximum_takes_replicas_away_at_once_and_no_request_is_lost(stage: Stage) -> None:
    """By the load alone they go four minutes after the burst (operator/tests/run/test_autoscaler_ticks.py)."""
    elastic = stage.elastic
    elastic.patch({"prefill": {"replicas": {"min": 1, "max": 1}}})
    elastic.until("the way back to one replica each", lambda look: look.asked == {"prefill": 1, "decode": 1})
    elastic.until("the last one to have left", lambda look: len(look.pods) == 2)
    account(stage.loads["elastic"], at_least=BURST_RATE * BURST_SECONDS / 2)


def test_replicas_stand_by_where_nothing_asks_for_them(stage: Stage) -> None:
    elastic = stage.elastic
    roomy = {"replicas": {"min": 1, "max": 2}}
    elastic.patch({"prefill": roomy, "decode": roomy, "autoscaling": {"mode": "Auto", "standby": 1}})
    elastic.until("one more of each role", lambda look: look.asked == {"prefill": 2, "decode": 2})
    elastic.until("both to be ready", lambda look: look.status.get("ready") == "4/4")
    seen = elastic.until("the decision", lambda look: STANDS_BY in " ".join(look.status["history"][0]["because"]))
    assert seen.asked == {"prefill": 2, "decode": 2}
    elastic.patch({"prefill": {"replicas": {"max": 1}}, "autoscaling": {"standby": 0}})


def test_the_alerts_are_in_force_and_the_dashboards_have_answers(stage: Stage) -> None:
    """Everything that a panel shows was there within this day's last quarter of an hour, on a service with a real load."""

    def evaluated() -> list[dict[str, Any]]:
        found = [rule for group in monitoring.ask(stage.platform, "rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else []

    rules = stage.platform.wait_for("every rule to be evaluated", evaluated)
    assert {rule["health"] for rule in rules} == {"ok"}, [rule for rule in rules if rule["health"] != "ok"]
    assert "SteelyardObjectiveBurnFast" in {rule["name"] for rule in rules if rule["type"] == "alerting"}
    panels = [panel for board in BOARDS.values() for row in board.rows.values() for panel in row]
    empty = [
        f"{panel.title}, {legend}: {query}"
        for panel in panels
        if panel.title not in ONLY_IN_TROUBLE
        for legend, query in panel.queries.items()
        if not answered(stage.platform, query)
    ]
    assert not empty


ONLY_IN_TROUBLE = ("What needs somebody", "Limited", "Decisions that were limited")


def answered(platform: Platform, query: str) -> bool:
    """Whether a panel's query has an answer for the service."""
    for variable, value in {"$__rate_interval": "30s", "$namespace": NAMESPACE, "$service": "elastic"}.items():
        query = query.replace(variable, value)
    now = time.time()
    asked = urlencode({"query": query, "start": now - 900, "end": now, "step": 15})
    return bool(monitoring.ask(platform, f"query_range?{asked}")["result"])
