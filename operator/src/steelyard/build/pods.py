"""Deployments of engines: one pool a role, whose pods can be prefilled into, decoded from, drained and relabelled.

No `replicas` is ever in the manifest (the scaler owns it), and the selector is the pool, never the role: a role change
relabels a running pod, which must stay in its Deployment.
"""

from typing import Any

from steelyard.api import names
from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import (
    COMPONENT,
    ENGINE_PORT,
    KV_GROUP,
    MANAGED_BY,
    MANAGER,
    POOL,
    REVISION,
    ROLE,
    SERVICE,
    SIMULATED_RESOURCE,
)
from steelyard.api.roles import Resources, Role
from steelyard.api.service import InferenceService
from steelyard.build import security, template
from steelyard.build.engines import embedded
from steelyard.build.engines.parts import Parts
from steelyard.build.meta import ENGINE, LIFECYCLE, STANDSTILL, Body, child, engine_labels, pull_secrets
from steelyard.catalog.engines import ENGINES
from steelyard.decide.fingerprint import digest, kv_group
from steelyard.decide.site import Site

PROBE_SECONDS = 2
CHECKSUM = "serving.steelyard.dev/settings-checksum"


def deployment(service: InferenceService, role_name: str, accelerator: Accelerator | None, site: Site) -> list[Body]:
    """Build a role's Deployment, after the ConfigMap of its engine's settings where the engine has any."""
    role = service.spec.roles[role_name]
    parts = embedded.parts(service, role_name, role, accelerator, site)
    children = []
    if parts.settings:
        settings = child(service, "v1", "ConfigMap", names.engines(service.name, role_name), {POOL: role_name})
        children.append({**settings, "data": parts.settings})
    pod = template.merged(_pod(service, role_name, role, accelerator, site, parts), role.template)
    pod["metadata"]["labels"][REVISION] = digest(pod)
    body = child(service, "apps/v1", "Deployment", names.engines(service.name, role_name), _labels(role_name))
    body["spec"] = {
        "selector": {"matchLabels": engine_labels(service, role_name)},
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": parts.startup_seconds + 60,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "template": pod,
    }
    children.append(body)
    return children


def _labels(pool: str) -> dict[str, str]:
    return {COMPONENT: ENGINE, POOL: pool}


def _pod(
    service: InferenceService,
    role_name: str,
    role: Role,
    accelerator: Accelerator | None,
    site: Site,
    parts: Parts,
) -> Body:
    labels = {
        MANAGED_BY: MANAGER,
        SERVICE: service.name,
        **_labels(role_name),
        ROLE: role_name,
        KV_GROUP: kv_group(service, parts.image),
    }
    volumes = list(parts.volumes)
    annotations = {}
    if parts.settings:
        volumes.append({"name": "settings", "configMap": {"name": names.engines(service.name, role_name)}})
        annotations[CHECKSUM] = digest(parts.settings)
    container = {
        "name": "engine",
        "image": parts.image,
        "imagePullPolicy": site.image_pull_policy,
        "command": list(parts.command),
        "args": list(parts.args),
        "env": [*parts.env, *template.variables(service.spec.engine.env)],
        "ports": list(parts.ports),
        "volumeMounts": list(parts.mounts),
        "resources": _resources(service, role.resources, accelerator),
        "securityContext": security.CONTAINER,
        "lifecycle": LIFECYCLE,
        # Ready only after the warm-up and never while draining; restarted only when the loop itself stands still.
        "startupProbe": _probe("/health", period=PROBE_SECONDS, failures=parts.startup_seconds // PROBE_SECONDS),
        "readinessProbe": _probe("/health", period=PROBE_SECONDS, failures=2),
        "livenessProbe": {**_probe("/live", period=5, failures=6), **STANDSTILL},
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": engine_labels(service, role_name)},
    }
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # a Service called `vllm` must not become an engine's variable (B28)
        "terminationGracePeriodSeconds": parts.drain_seconds,
        "securityContext": security.POD,
        "topologySpreadConstraints": [spread],
        "containers": [container],
        "volumes": volumes,
        **pull_secrets(site),
    }
    if parts.init_containers:
        spec["initContainers"] = list(parts.init_containers)
    if accelerator is not None and ENGINES[service.spec.engine.name].needs_hardware and accelerator.spec.node_selector:
        spec["nodeSelector"] = dict(accelerator.spec.node_selector)
    metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": spec}


def _resources(service: InferenceService, resources: Resources, accelerator: Accelerator | None) -> Body:
    """Give the container's resources, with one accelerator where the hardware is counted.

    A simulated engine takes one of the simulated kind, so that scarcity is real without the hardware.
    """
    body: Body = template.amounts(resources)
    if accelerator is not None and accelerator.spec.resource is not None:
        hardware = ENGINES[service.spec.engine.name].needs_hardware
        counted = accelerator.spec.resource if hardware else SIMULATED_RESOURCE
        for kind in ("requests", "limits"):
            body.setdefault(kind, {})[counted] = "1"
    return body


def _probe(path: str, period: int, failures: int) -> Body:
    return {
        "httpGet": {"path": path, "port": ENGINE_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
