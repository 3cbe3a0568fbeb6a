"""Changes that are interrupted or come from another version: the operator killed between two writes, CRDs upgraded under what
they had stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from steelyard.api import crd
from steelyard.api.labels import MANAGED_BY, SERVICE
from steelyard.observe.client import connect
from steelyard.observe.resources import CHILD_KINDS, CONTROLLER_REVISION, Resource

from e2e.cluster import ClusterError
from e2e.cluster.local.cluster import LocalCluster
from e2e.platform import CHARTS, EXAMPLES, SYSTEM_NAMESPACE, Platform, condition

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME, TRIES = "rehearsal", 6
Key = tuple[str, str]  # kind, name
EXAMPLE = yaml.safe_load((EXAMPLES / "simulated.yaml").read_text())
REPLICA_SET = Resource("ReplicaSet", "apps", "v1", "replicasets")
OURS = f"{MANAGED_BY}=steelyard"

# A killed operator


def children(platform: Platform, namespace: str) -> dict[Key, str]:
    """The uids of all children and revisions of a namespace, by kind and name."""
    api = connect(str(platform.cluster.kubeconfig))
    kinds = (*CHILD_KINDS, CONTROLLER_REVISION)
    return {(r.kind, b["metadata"]["name"]): b["metadata"]["uid"] for r in kinds for b in api.list(r, namespace, OURS)}


def kill_the_operators(cluster: LocalCluster) -> None:
    """End every operator on every node at once, as a lack of memory would."""
    for node in cluster.nodes:
        machine = cluster.machine(node)
        machine.run("sh", "-c", "kill -KILL $(pgrep -f '/steelyard-operato[r]') || true")


def unplaced(name: str) -> str:
    """A service whose engines no node takes: here only its children matter."""
    nowhere = {"template": {"spec": {"nodeSelector": {"nowhere": "yes"}}}}
    spec = {**EXAMPLE["spec"], "prefill": nowhere, "decode": nowhere, "routing": {"replicas": 1}}
    return yaml.safe_dump({**EXAMPLE, "metadata": {"name": name}, "spec": spec})


def test_an_operator_killed_between_two_writes_is_carried_on(platform: Platform, namespace: str) -> None:
    """Several services are being created when it dies: what is there stays, what is missing comes, nothing comes twice."""
    cluster = platform.cluster
    if not isinstance(cluster, LocalCluster):
        pytest.skip("END-TO-END SKIPPED: the operator's process is reached through a node of the local cluster")
    for number in range(TRIES):
        names = [f"part{number}{letter}" for letter in "abcd"]
        known = children(platform, namespace)

        def begun(known: dict[Key, str] = known) -> bool:
            return len(children(platform, namespace)) > len(known)

        def done(name: str) -> bool:
            found = platform.get("inferenceservice", name, namespace).get("status", {})
            return found.get("observedGeneration") == 1 and condition({"status": found}, "Accepted") == "True"

        platform.apply("---\n".join(map(unplaced, names)), namespace)
        platform.wait_for("the first child", begun, 120)
        kill_the_operators(cluster)
        before = children(platform, namespace)
        for name in names:
            platform.wait_for(f"the status of {name}", lambda name=name: done(name), 240)  # type: ignore[misc]
        after = children(platform, namespace)
        assert before.items() <= after.items(), "a child that was there was replaced"
        each = {name: sum(f"{key[1]}-".startswith(f"{name}-") for key in after) for name in names}
        assert len(set(each.values())) == 1, f"as many children for every service: {each}"
        if len(before) < len(after):
            break
    else:
        pytest.fail(f"in {TRIES} tries all children were there before the operators died")
    api = connect(str(cluster.kubeconfig))
    sets = [body["metadata"]["ownerReferences"][0]["name"] for body in api.list(REPLICA_SET, namespace)]
    assert len(sets) == len(set(sets)), "one ReplicaSet a Deployment: nothing was rolled"
    revisions = [body["metadata"]["labels"][SERVICE] for body in api.list(CONTROLLER_REVISION, namespace, OURS)]
    assert len(revisions) == len(set(revisions)), "one revision a service"


# Another version's CRD


@contextmanager
def installed(platform: Platform, change: Callable[[dict[str, Any]], None]) -> Iterator[Callable[[], None]]:
    """Serve our kind by a changed definition; gives what installs the present one, which happens in the end anyway."""

    def upgrade() -> None:
        chart = str(CHARTS / "steelyard-crds")
        adopt = ("--take-ownership", "--force-conflicts")
        platform.helm("upgrade", "--install", "steelyard-crds", chart, "-n", SYSTEM_NAMESPACE, *adopt)
        platform.kubectl(
            "wait", "--for=condition=Established", "--timeout=60s", f"crd/{definition['metadata']['name']}"
        )

    definition = next(
        body for text in crd.files().values() if "Inference" in (body := yaml.safe_load(text))["spec"]["names"]["kind"]
    )
    change(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    platform.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(definition))
    try:
        yield upgrade
    finally:
        upgrade()


def without_rules(schema: Any) -> None:
    """Take every CEL rule out of a schema."""
    if isinstance(schema, dict):
        schema.pop("x-kubernetes-validations", None)
    for inner in schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ():
        without_rules(inner)


def pods(platform: Platform, namespace: str) -> set[str]:
    return {
        pod["metadata"]["uid"] for pod in platform.items("pod", namespace) if "deletionTimestamp" not in pod["metadata"]
    }


def patch(platform: Platform, namespace: str, spec: dict[str, Any]) -> None:
    text = json.dumps({"spec": spec})
    platform.kubectl("patch", "inferenceservice", NAME, "-n", namespace, "--type=merge", "-p", text)


def test_an_upgrade_of_the_kind_keeps_what_is_stored(platform: Platform, namespace: str) -> None:
    """An object from before a field, and one that the new rules refuse, are read, reported on, and keep their pods
    (projectcalico/calico#6880, slauger/openvox-operator#555; D01, D02)."""

    def older(schema: dict[str, Any]) -> None:
        without_rules(schema)
        routing = schema["properties"]["spec"]["properties"]["routing"]
        del routing["properties"]["affinity"]
        routing.get("default", {}).pop("affinity", None)

    def told(status: str) -> Callable[[], bool]:
        return lambda: condition(platform.get("inferenceservice", NAME, namespace), "Accepted") == status

    with installed(platform, older) as upgrade:
        platform.apply(yaml.safe_dump(EXAMPLE), namespace)
        first = platform.wait_available(NAME, namespace)
        assert "affinity" not in first["spec"].get("routing", {})
        running = pods(platform, namespace)
        patch(platform, namespace, {"decode": {"replicas": {"min": 3, "max": 2}}})
        platform.wait_for("the operator to refuse what no rule had", told("False"), 60)
        upgrade()
        stored = platform.get("inferenceservice", NAME, namespace)
        assert stored["spec"]["decode"]["replicas"] == {"min": 3, "max": 2}
        platform.kubectl("annotate", "inferenceservice", NAME, "-n", namespace, "example.com/look=again")
        with pytest.raises(ClusterError, match="replicas"):
            patch(platform, namespace, {"decode": {"replicas": {"min": 4, "max": 2}}})
        patch(platform, namespace, {"decode": {"replicas": {"min": 1, "max": 4}}, "routing": {"affinity": "prefix"}})
        platform.wait_for("the operator to take the spec again", told("True"), 60)
        last = platform.wait_available(NAME, namespace)
        assert last["metadata"]["uid"] == first["metadata"]["uid"]
        assert last["spec"]["routing"]["affinity"] == "prefix"
        assert pods(platform, namespace) == running, "a field with its default's value changes no child"
