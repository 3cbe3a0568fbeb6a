"""Pools of engines: one a role, whose pods can be prefilled into, decoded from, drained and relabelled.

A pool is a Deployment, or a LeaderWorkerSet where one replica spans nodes: its leader answers requests and carries the
labels that gateways and selectors look for, its followers only compute.

No `replicas` is ever in the manifest (the scaler owns it), and the selector is the pool, never the role: a role change
relabels a running pod, which must stay in its Deployment.
"""

import copy
from typing import Any

from steelyard.api import names
from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import (
    COMPONENT,
    ENGINE_PORT,
    FOLLOWER,
    KV_GROUP,
    MANAGED_BY,
    MANAGER,
    METRICS_PATH,
    POOL,
    REVISION,
    ROLE,
    SERVICE,
    SIMULATED_RESOURCE,
)
from steelyard.api.quantities import Quantity
from steelyard.api.roles import Role
from steelyard.api.service import InferenceService
from steelyard.build import prepull, security, template
from steelyard.build.engines import choose
from steelyard.build.engines.parts import Parts
from steelyard.build.meta import (
    ENGINE,
    FIRST_PROCESS,
    LIFECYCLE,
    STANDSTILL,
    Body,
    child,
    engine_labels,
    pull_secrets,
)
from steelyard.catalog.engines import ENGINES
from steelyard.decide.fingerprint import digest, kv_group
from steelyard.decide.site import Site

PROBE_SECONDS = 2
CHECKSUM = "serving.steelyard.dev/settings-checksum"
DEFAULT_METRICS_PATH = "/metrics"  # PodMonitors ask here unless a pod says otherwise
CLAIM = "serving.steelyard.dev/"


def deployment(service: InferenceService, role_name: str, accelerator: Accelerator | None, site: Site) -> list[Body]:
    """Build a role's pool, after the ConfigMap of its engine's settings where the engine has any."""
    role = service.spec.roles[role_name]
    parts = choose.parts(service, role_name, accelerator, site)
    children = []
    if parts.settings:
        settings = child(service, "v1", "ConfigMap", names.engines(service.name, role_name), {POOL: role_name})
        children.append({**settings, "data": parts.settings})
    plain = _pod(service, role_name, role, accelerator, site, parts)
    pod = template.merged(plain, role.template)
    revision = digest([pod, parts.follower_args]) if parts.nodes > 1 else digest(pod)
    pod["metadata"]["labels"][REVISION] = revision
    if service.spec.engine.prepull:
        own = {one["name"] for one in (*plain["spec"].get("initContainers", ()), *plain["spec"]["containers"])}
        children.append(prepull.daemon_set(service, role_name, pod, own, site))
    if parts.nodes > 1:
        children.append(group(service, role_name, pod, parts))
        return children
    body = child(service, "apps/v1", "Deployment", names.engines(service.name, role_name), _labels(role_name))
    rollout = service.spec.rollout
    body["spec"] = {
        "selector": {"matchLabels": engine_labels(service, role_name)},
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": parts.startup_seconds + 60,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": rollout.max_unavailable.plain, "maxSurge": rollout.max_surge.plain},
        },
        "template": pod,
    }
    children.append(body)
    return children


def group(service: InferenceService, role_name: str, leader: Body, parts: Parts) -> Body:
    """Build the LeaderWorkerSet of a role whose replicas span nodes: all pods of a replica start and fail together."""
    body = child(
        service,
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        names.engines(service.name, role_name),
        _labels(role_name),
    )
    follower = copy.deepcopy(leader)
    labels = follower["metadata"]["labels"]
    for key in (ROLE, POOL, COMPONENT, KV_GROUP):
        del labels[key]
    labels[COMPONENT] = FOLLOWER
    engine = follower["spec"]["containers"][0]
    engine["args"] = list(parts.follower_args)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe", "ports"):
        del engine[probe]  # it serves nothing; the leader fails when it is gone
    engine["lifecycle"] = LIFECYCLE
    del follower["spec"]["topologySpreadConstraints"]
    rollout = service.spec.rollout
    body["spec"] = {
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {
                "maxUnavailable": rollout.max_unavailable.plain,
                "maxSurge": rollout.max_surge.plain,
            },
        },
        "leaderWorkerTemplate": {
            "size": parts.nodes,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": leader,
            "workerTemplate": follower,
        },
    }
    return body


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
    volumes, mounts = list(parts.volumes), list(parts.mounts)
    annotations = _claims(service, role_name)
    if parts.metrics_path != DEFAULT_METRICS_PATH:
        annotations[METRICS_PATH] = parts.metrics_path
    if (shared := role.shared_memory or parts.shared_memory) is not None:
        volumes.append({"name": "steelyard-shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shared)}})
        mounts.append({"name": "steelyard-shm", "mountPath": "/dev/shm"})  # noqa: S108 (a path in the container)
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
        "volumeMounts": mounts,
        "resources": _resources(service, role, accelerator, parts),
        "securityContext": security.container(parts.capabilities),
        "lifecycle": _lifecycle(parts),
        # Ready only after the warm-up and never while draining; restarted only when the loop itself stands still.
        "startupProbe": _probe("/health", period=PROBE_SECONDS, failures=parts.startup_seconds // PROBE_SECONDS),
        "readinessProbe": _probe("/health", period=PROBE_SECONDS, failures=2),
        "livenessProbe": {**_probe(parts.live_path, period=5, failures=6), **STANDSTILL},
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
    if parts.command[: len(FIRST_PROCESS)] != FIRST_PROCESS:
        # Its image has no init of ours: the pod's own takes that place, so that SIGTERM ends a program that handles none yet.
        spec["shareProcessNamespace"] = True
    if parts.init_containers:
        spec["initContainers"] = list(parts.init_containers)
    if accelerator is not None and ENGINES[service.spec.engine.name].needs_hardware and accelerator.spec.node_selector:
        spec["nodeSelector"] = dict(accelerator.spec.node_selector)
    metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": spec}


def _resources(service: InferenceService, role: Role, accelerator: Accelerator | None, parts: Parts) -> Body:
    """Give the container's resources, with its accelerators where the hardware is counted.

    A simulated engine takes one of the simulated kind, so that scarcity is real without the hardware. What a cache keeps
    in the pod's own memory comes on top of what the user asks for.
    """
    body: Body = template.amounts(role.resources)
    counted = dict(parts.devices)
    if accelerator is not None and accelerator.spec.resource is not None:
        hardware = ENGINES[service.spec.engine.name].needs_hardware
        counted[accelerator.spec.resource if hardware else SIMULATED_RESOURCE] = parts.accelerators
    for kind in ("requests", "limits"):
        if counted:
            body.setdefault(kind, {}).update({name: str(number) for name, number in counted.items()})
        if parts.extra_memory and (kind == "requests" or "memory" in body.get(kind, {})):
            asked = Quantity(body.get(kind, {}).get("memory", 0)).whole
            body.setdefault(kind, {})["memory"] = str(asked + parts.extra_memory)
    return body


def _lifecycle(parts: Parts) -> Body:
    """Before SIGTERM: the engine's own way to drain, which waits a second at least, else that second alone."""
    return {"preStop": {"exec": {"command": list(parts.drain_command)}}} if parts.drain_command else LIFECYCLE


def _claims(service: InferenceService, role_name: str) -> dict[str, str]:
    """Say on the pod what the spec claims and no flag repeats: the form of a stored checkpoint, which the engine reads
    there, and the version of the image."""
    formats = service.spec.quantization_of(role_name)
    said = {"engine-version": service.spec.engine.version}
    if formats.source != "Load":
        said |= {"checkpoint-weights": formats.weights, "checkpoint-activations": formats.activations}
    return {f"{CLAIM}{name}": value for name, value in said.items() if value not in (None, "auto")}


def _probe(path: str, period: int, failures: int) -> Body:
    return {
        "httpGet": {"path": path, "port": ENGINE_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
