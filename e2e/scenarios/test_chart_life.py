"""Charts over their life on a real API server: kinds outlive them, upgrades bring new fields, rights end where they should."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from steelyard.api import crd
from steelyard.api.rules import sample
from steelyard.apply.access import ACCESS

from e2e.cluster import ClusterError
from e2e.platform import CHARTS, SYSTEM_NAMESPACE, Platform, PlatformError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

KINDS = "crd/inferenceservices.serving.steelyard.dev", "crd/accelerators.serving.steelyard.dev"
# Helm's marks, and Helm 4's fields: whoever applied a field by server-side apply before would keep it.
ADOPT = ("--take-ownership", "--force-conflicts")
RELEASE = ("steelyard-crds", "-n", SYSTEM_NAMESPACE)
OPERATOR = "steelyard-operator"
Right = tuple[str, str, str]  # group, resource with its subresource, verb


@pytest.fixture
def kinds(platform: Platform, namespace: str) -> Iterator[dict[str, Any]]:
    """A paused service of the kinds' present version; afterwards the chart is installed as before."""
    body = sample({"metadata": {"name": "kept", "namespace": namespace}})
    body["metadata"]["annotations"] = {"serving.steelyard.dev/paused": "true"}
    platform.kubectl("create", "-f", "-", text=json.dumps(body))
    yield platform.get("isv", "kept", namespace)
    install(platform, CHARTS / "steelyard-crds", *ADOPT)
    platform.kubectl("delete", "isv", "kept", "-n", namespace, "--wait=false")


def install(platform: Platform, chart: Path, *flags: str) -> None:
    platform.helm("upgrade", "--install", RELEASE[0], str(chart), *RELEASE[1:], *flags)
    platform.kubectl("wait", "--for=condition=Established", "--timeout=60s", *KINDS)


def same(platform: Platform, before: dict[str, Any]) -> bool:
    now = platform.get("isv", before["metadata"]["name"], before["metadata"]["namespace"])
    return bool(now and now["metadata"]["uid"] == before["metadata"]["uid"] and now["spec"] == before["spec"])


def test_services_outlive_the_chart_of_their_kind(platform: Platform, kinds: dict[str, Any]) -> None:
    """Uninstalling deleted every custom resource (mogenius/renovate-operator#136, cert-manager/cert-manager#1134)."""
    assert "kept due to the resource policy" in platform.helm("uninstall", *RELEASE)
    assert same(platform, kinds)
    install(platform, CHARTS / "steelyard-crds")
    assert same(platform, kinds)


def test_kinds_applied_by_hand_are_adopted(platform: Platform, kinds: dict[str, Any]) -> None:
    """CRDs without Helm's marks block an installation (Dynatrace/helm-charts#114); the documented flags take them over."""
    platform.helm("uninstall", *RELEASE)
    marks = ("meta.helm.sh/release-name-", "meta.helm.sh/release-namespace-")
    platform.kubectl("annotate", *KINDS, *marks)
    platform.kubectl("label", *KINDS, "app.kubernetes.io/managed-by-")
    older = "---\n".join(
        text.replace("What the user asks for.", "What users ask for.") for text in crd.files().values()
    )
    platform.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=older)
    with pytest.raises(PlatformError, match="exists and cannot be imported"):
        install(platform, CHARTS / "steelyard-crds")
    install(platform, CHARTS / "steelyard-crds", *ADOPT)
    assert same(platform, kinds)
    assert "What the user asks for." in platform.kubectl("get", KINDS[0], "-o", "yaml")


def test_an_upgrade_brings_new_fields(platform: Platform, kinds: dict[str, Any], tmp_path: Path) -> None:
    """A chart upgrade left the old schema, which dropped the new field without a word (projectcalico/calico#6880)."""
    newer = tmp_path / "steelyard-crds"
    shutil.copytree(CHARTS / "steelyard-crds", newer)
    template = newer / "templates" / "inferenceservices.yaml"
    definition = yaml.safe_load(template.read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["lane"] = {"type": "string", "maxLength": 8}
    template.write_text(yaml.safe_dump(definition))
    patch = (
        "patch",
        "isv",
        "kept",
        "-n",
        kinds["metadata"]["namespace"],
        "--type=merge",
        "-p",
        '{"spec":{"lane":"fast"}}',
    )
    platform.kubectl(*patch)
    assert same(platform, kinds)
    install(platform, newer)
    platform.wait_for("the new field to be served", lambda: platform.kubectl(*patch) and not same(platform, kinds), 30)
    stored = platform.get("isv", "kept", kinds["metadata"]["namespace"])
    assert stored["metadata"]["uid"] == kinds["metadata"]["uid"]
    assert stored["spec"] == {**kinds["spec"], "lane": "fast"}


def allowed(
    platform: Platform, account: str, namespace: str | None, rights: Iterable[Right], name: str = ""
) -> set[Right]:
    """The rights out of `rights` that an account of the system namespace has in a namespace (None: in all)."""
    asked = sorted(rights)
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}",
                "groups": [
                    "system:serviceaccounts",
                    f"system:serviceaccounts:{SYSTEM_NAMESPACE}",
                    "system:authenticated",
                ],
                "resourceAttributes": {
                    "group": group,
                    "resource": resource.partition("/")[0],
                    "subresource": resource.partition("/")[2],
                    "verb": verb,
                    "name": name,
                    **({"namespace": namespace} if namespace else {}),
                },
            },
        }
        for group, resource, verb in asked
    ]
    answers = platform.kubectl("create", "-o", "json", "-f", "-", text="\n---\n".join(json.dumps(r) for r in reviews))
    given = [answer for answer in _documents(answers) if answer["kind"] == "SubjectAccessReview"]
    return {right for right, answer in zip(asked, given, strict=True) if answer["status"]["allowed"]}


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """kubectl prints one JSON object after another, or a List of them."""
    decoder, place = json.JSONDecoder(), 0
    while place < len(text.rstrip()):
        document, place = decoder.raw_decode(text, place)
        place += len(text[place:]) - len(text[place:].lstrip())
        yield from document["items"] if document["kind"] == "List" else [document]


def rights(*scopes: str) -> set[Right]:
    return {(a.group, a.resource, verb) for a in ACCESS if a.scope in scopes for verb in a.verbs}


FORBIDDEN: set[Right] = {
    ("", "secrets", "get"),
    ("", "secrets", "list"),
    ("", "pods/exec", "create"),
    ("", "pods", "create"),
    ("", "nodes", "list"),
    ("", "namespaces", "list"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "list"),
    ("serving.steelyard.dev", "inferenceservices", "delete"),
    ("serving.steelyard.dev", "accelerators", "create"),
    ("rbac.authorization.k8s.io", "roles", "escalate"),
    ("rbac.authorization.k8s.io", "clusterroles", "create"),
}


def test_the_operator_may_do_what_it_does_and_no_more(platform: Platform) -> None:
    assert allowed(platform, OPERATOR, None, rights("watched", "cluster")) == rights("watched", "cluster")
    assert allowed(platform, OPERATOR, SYSTEM_NAMESPACE, rights("own"), name=OPERATOR) == rights("own")
    assert allowed(platform, OPERATOR, None, FORBIDDEN) == set()


def test_a_namespaced_operator_has_no_rights_elsewhere(platform: Platform, namespace: str) -> None:
    """It must do with Roles alone (dask/dask-kubernetes#916) and ask for nothing of the whole cluster (kopf#32)."""
    only = ("--show-only", "templates/rbac.yaml", "--set", f"watchNamespaces={{{namespace}}}")
    manifests = platform.helm("template", "narrow-steelyard", str(CHARTS / "steelyard"), "-n", SYSTEM_NAMESPACE, *only)
    platform.kubectl("apply", "-f", "-", text=manifests)
    account = "narrow-steelyard-operator"
    try:
        watched = rights("watched")
        platform.wait_for(
            "the new rights to hold", lambda: allowed(platform, account, namespace, watched) == watched, 30
        )
        assert allowed(platform, account, "default", watched) == set()
        assert allowed(platform, account, None, watched) == set()
        assert allowed(platform, account, None, rights("cluster")) == rights("cluster")
    finally:
        platform.kubectl("delete", "-f", "-", text=manifests)


def test_the_operators_pod_passes_the_restricted_profile(platform: Platform, namespace: str) -> None:
    platform.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    only = ("--show-only", "templates/deployment.yaml")
    deployment = yaml.safe_load(
        platform.helm("template", "steelyard", str(CHARTS / "steelyard"), "-n", namespace, *only)
    )
    spec = {**deployment["spec"]["template"]["spec"], "serviceAccountName": "default"}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": namespace},
        "spec": spec,
    }
    platform.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(pod))
    spec["securityContext"] = {}
    with pytest.raises(ClusterError, match="violates PodSecurity"):
        platform.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(pod))


def test_a_second_release_for_all_namespaces_is_refused(platform: Platform, namespace: str) -> None:
    """Two operators acted on the same objects (ai-dynamo/dynamo#4573); what the first one owns stops the second."""
    with pytest.raises(PlatformError, match="cannot be imported into the current release"):
        platform.helm("install", "other", str(CHARTS / "steelyard"), "-n", namespace, "--dry-run=server")


def test_a_namespaced_operator_runs_with_roles_alone(platform: Platform, namespace: str) -> None:
    """It starts, leads and serves its namespace, and is never refused a right (dask/dask-kubernetes#916)."""
    images = json.loads(platform.helm("get", "values", "steelyard", "-n", SYSTEM_NAMESPACE, "-o", "json"))["images"]
    values = {"images": images, "watchNamespaces": [namespace], "replicas": 1}
    values |= {"accelerators": {"install": False}, "userRoles": {"install": False}}
    flags = [part for key, value in values.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]
    release = ("narrow", "-n", namespace)
    platform.helm("install", release[0], str(CHARTS / "steelyard"), *release[1:], "--wait", "--timeout", "2m", *flags)
    try:
        logs = ("logs", "deployment/narrow-steelyard-operator", "-n", namespace)
        platform.wait_for("the operator to lead", lambda: "leading" in platform.kubectl(*logs), 60)
        assert "forbidden" not in platform.kubectl(*logs).lower()
    finally:
        platform.helm("uninstall", *release)


def test_the_operator_was_never_refused_a_right(platform: Platform) -> None:
    """Rights needed in one mode only were forgotten (ai-dynamo/dynamo#8907); a refused call is in the log. What is refused
    because a namespace of an earlier scenario ends is no lack of rights."""
    for pod in platform.items("pod", SYSTEM_NAMESPACE, "app.kubernetes.io/component=operator"):
        log = platform.kubectl("logs", pod["metadata"]["name"], "-n", SYSTEM_NAMESPACE).lower()
        refused = [line for line in log.splitlines() if "forbidden" in line and "is being terminated" not in line]
        assert refused == []
