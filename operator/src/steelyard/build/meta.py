"""What every child has in common: its name and namespace, our labels, and the owner that takes it along when it goes.

Children live in the owner's namespace and nowhere else, so an owner reference never crosses namespaces (B05, B06).
"""

from typing import Any

from steelyard.api.labels import API_VERSION, COMPONENT, MANAGED_BY, MANAGER, POOL, SERVICE
from steelyard.api.service import InferenceService
from steelyard.decide.site import Site

Body = dict[str, Any]

ENGINE, GATEWAY = "engine", "gateway"

# Before the program of a container: without it a pod that is deleted while Python starts stays for its whole grace period,
# because pid 1 is ended by no signal that it does not handle yet. A `command` replaces the image's entry point, tini included.
FIRST_PROCESS = ("tini", "--")

# And before SIGTERM: a container that is stopped in the instant it starts gets the signal while tini is not yet there to catch
# it; the kernel drops it, nobody repeats it, and the pod stays for its whole grace period. The kubelet waits this long first.
LIFECYCLE = {"preStop": {"sleep": {"seconds": 1}}}

# Of a liveness probe: a program that has not answered for half a minute will not drain either, and each second of its pod's
# grace period would only delay its restart.
STANDSTILL = {"terminationGracePeriodSeconds": 5}


def child(
    service: InferenceService, api_version: str, kind: str, name: str, labels: dict[str, str] | None = None
) -> Body:
    """Begin a manifest: kind and metadata; the builder adds the rest."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": service.namespace,
            "labels": {MANAGED_BY: MANAGER, SERVICE: service.name, **(labels or {})},
            **_owners(service),
        },
    }


def engine_labels(service: InferenceService, pool: str) -> dict[str, str]:
    """Labels that find the pods born in one pool: the Deployment's selector, and what its disruption budget selects."""
    return {SERVICE: service.name, COMPONENT: ENGINE, POOL: pool}


def gateway_labels(service: InferenceService) -> dict[str, str]:
    """Labels that find the gateway's pods."""
    return {SERVICE: service.name, COMPONENT: GATEWAY}


def pull_secrets(site: Site) -> Body:
    """The part of a pod's spec that names the installation's registry credentials; nothing where there are none (D15, D16)."""
    if not site.image_pull_secrets:
        return {}
    return {"imagePullSecrets": [{"name": name} for name in site.image_pull_secrets]}


def uid(service: InferenceService) -> str | None:
    """The owner's uid; a manifest that was never applied has none."""
    value = (service.metadata.model_extra or {}).get("uid")
    return str(value) if value else None


def _owners(service: InferenceService) -> Body:
    owner = uid(service)
    if owner is None:
        return {}
    reference = {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "name": service.name,
        "uid": owner,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"ownerReferences": [reference]}
