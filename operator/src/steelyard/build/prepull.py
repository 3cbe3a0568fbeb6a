"""Images on every node that may run an engine, before a replica comes: one DaemonSet a role.

Each image is an init container that ends at once (`true`), so it must have that program: those of engines and of weights do,
which are run with commands of ours anyway. A user's sidecar may be of an image that has no program but its own; one such init
container would fail for ever, on every node, so sidecars' images come with the replica. What stays is a sleeping process. The pods
take no accelerators, see no secrets, speak to nobody and carry none of the labels that gateways, selectors and the operator
look for. Nodes and tolerations are those of the role's own pods.
"""

from collections.abc import Collection
from typing import Any

from steelyard.api import names
from steelyard.api.labels import GROUP, POOL
from steelyard.api.service import InferenceService
from steelyard.build import security
from steelyard.build.meta import FIRST_PROCESS, Body, child, pull_secrets
from steelyard.decide.site import Site

IMAGES = f"{GROUP}/images"  # label: whose images a pod fetches
TINY = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"cpu": "50m", "memory": "64Mi"}}


def daemon_set(service: InferenceService, role: str, pod: Body, own: Collection[str], site: Site) -> Body:
    """Build the DaemonSet that fetches the images of a role's `pod` (its template, the user's additions included), as far as
    the names of its containers are in `own`: those that we put there."""
    spec = pod["spec"]
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    mine = [one["image"] for one in containers if one["name"] in own]
    images = dict.fromkeys(image for image in mine if image != site.gateway_image)
    body = child(service, "apps/v1", "DaemonSet", names.child(service.name, f"{role}-images"), {POOL: role})
    labels = {IMAGES: body["metadata"]["name"]}
    fetching: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": security.POD,
        "initContainers": [_container(f"image-{n}", image, ["true"], site) for n, image in enumerate(images)],
        "containers": [_container("there", site.gateway_image, [*FIRST_PROCESS, "sleep", "infinity"], site)],
        **{
            name: spec[name] for name in ("nodeSelector", "tolerations", "affinity", "runtimeClassName") if name in spec
        },
        **pull_secrets(site),
    }
    if secrets := spec.get("imagePullSecrets"):
        fetching["imagePullSecrets"] = secrets
    body["spec"] = {
        "selector": {"matchLabels": labels},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
        "template": {"metadata": {"labels": labels}, "spec": fetching},
    }
    return body


def _container(name: str, image: str, command: list[str], site: Site) -> Body:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": site.image_pull_policy,
        "command": command,
        "resources": TINY,
        "securityContext": security.CONTAINER,
    }
