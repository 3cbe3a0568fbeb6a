"""What pods say about ports, probes, processes and pull secrets, for every topology and engine: one source each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from operator_bodies import KNOWN, SITE, service, simulated
from steelyard.build.meta import Body
from steelyard.build.render import children

SHAPES: dict[str, Body] = {
    "embedded": {},
    "embedded, one pool": {"topology": "Aggregated"},
    "simulated": simulated(),
    "simulated, one pool": simulated({"topology": "Aggregated"}),
}
every_shape = pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)


def of_kind(kind: str, rendered: list[Body]) -> list[Body]:
    return [body for body in rendered if body["kind"] == kind]


def pods(rendered: list[Body]) -> list[Body]:
    return [body["spec"]["template"] for body in of_kind("Deployment", rendered)]


def chosen(labels: dict[str, str], selector: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


@every_shape
def test_probes_services_and_policies_use_ports_that_the_containers_open(spec: Body) -> None:
    """Ports were written in several places and one was changed alone (kserve/kserve's sample of two roles; E22)."""
    rendered = children(service(spec), KNOWN, SITE)
    for pod in pods(rendered):
        [container] = [one for one in pod["spec"]["containers"] if one["ports"]]
        opened = {port["containerPort"] for port in container["ports"]} | {port["name"] for port in container["ports"]}
        labels = pod["metadata"]["labels"]
        used: set[Any] = {container[kind]["httpGet"]["port"] for kind in container if kind.endswith("Probe")}
        for body in of_kind("Service", rendered):
            if chosen(labels, body["spec"]["selector"]):
                used |= {port["targetPort"] for port in body["spec"]["ports"]}
        for body in of_kind("NetworkPolicy", rendered):
            if chosen(labels, body["spec"]["podSelector"]["matchLabels"]):
                used |= {port["port"] for rule in body["spec"]["ingress"] for port in rule["ports"]}
        assert used <= opened
        assert used, "a pod that nothing asks is not served"


@every_shape
def test_engines_have_time_to_start_and_liveness_waits_for_it(spec: Body) -> None:
    """A fixed delay killed slow loads and delayed fast ones (kserve/kserve#5062, E10); a port that opens late restarted the
    container in a loop (ai-dynamo/snapshot#311, E21). A start-up probe has neither: the others wait for it."""
    for pod in pods(children(service(spec), KNOWN, SITE)):
        for container in pod["spec"]["containers"]:
            probes = {kind: container[kind] for kind in container if kind.endswith("Probe")}
            assert "initialDelaySeconds" not in str(probes)
            if container["name"] == "engine":
                start = probes["startupProbe"]
                assert start["failureThreshold"] * start["periodSeconds"] >= 600


@every_shape
def test_no_shell_stands_between_the_kubelet_and_a_program(spec: Body) -> None:
    """A shell around the engine swallowed SIGTERM (ai-dynamo/dynamo#2776, E09)."""
    for pod in pods(children(service(spec), KNOWN, SITE)):
        for container in pod["spec"]["containers"]:
            assert container["command"][0] == "tini"
            assert not {"sh", "/bin/sh", "bash", "/bin/bash", "-c"} & {*container["command"], *container["args"]}


@every_shape
def test_every_pod_has_the_pull_secrets_and_none_when_none_are_given(spec: Body) -> None:
    """They reached the engines and not the router (vllm-project/production-stack#761, D15); without any there are no empty
    names (ai-dynamo/dynamo#1225, D16)."""
    site = replace(SITE, image_pull_secrets=("regcred", "mirror"))
    for pod in pods(children(service(spec), KNOWN, site)):
        assert pod["spec"]["imagePullSecrets"] == [{"name": "regcred"}, {"name": "mirror"}]
    for pod in pods(children(service(spec), KNOWN, SITE)):
        assert "imagePullSecrets" not in pod["spec"]


def test_a_roles_own_pull_secrets_are_added_once() -> None:
    own = {"template": {"spec": {"imagePullSecrets": [{"name": "mine"}, {"name": "regcred"}]}}}
    rendered = children(service({"decode": own}), KNOWN, replace(SITE, image_pull_secrets=("regcred",)))
    decode = next(
        body for body in rendered if body["metadata"]["name"] == "chat-decode" and body["kind"] == "Deployment"
    )
    assert decode["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "regcred"}, {"name": "mine"}]
