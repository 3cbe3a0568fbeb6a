"""The gateway: its Deployment, and the account with which it may see the pods of its namespace and nothing else."""

from math import ceil
from typing import Any

from steelyard.api import names
from steelyard.api.labels import COMPONENT, GATEWAY_METRICS_PORT, GATEWAY_PORT, MANAGED_BY, MANAGER
from steelyard.api.service import InferenceService
from steelyard.build import security
from steelyard.build.gateway_settings import FILE, KEYS_FOLDER
from steelyard.build.meta import (
    FIRST_PROCESS,
    GATEWAY,
    LIFECYCLE,
    STANDSTILL,
    Body,
    child,
    gateway_labels,
    pull_secrets,
)
from steelyard.decide.site import Site

SETTINGS = "/etc/steelyard"
EXIT_SECONDS = 15  # on top of the longest request
RBAC = "rbac.authorization.k8s.io"


def account(service: InferenceService) -> list[Body]:
    """The gateway's ServiceAccount with a Role of its own, named after the owner so that two never share one (B27)."""
    name = names.gateway_settings(service.name)
    labels = {COMPONENT: GATEWAY}
    who = child(service, "v1", "ServiceAccount", name, labels)
    who["automountServiceAccountToken"] = False  # the pod asks for its token itself
    may = child(service, f"{RBAC}/v1", "Role", name, labels)
    may["rules"] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    binding = child(service, f"{RBAC}/v1", "RoleBinding", name, labels)
    binding["roleRef"] = {"apiGroup": RBAC, "kind": "Role", "name": name}
    binding["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": service.namespace}]
    return [who, may, binding]


def deployment(service: InferenceService, site: Site) -> Body:
    """The gateway's Deployment; its settings are re-read, so a change of them restarts nothing."""
    body = child(service, "apps/v1", "Deployment", names.gateway(service.name), {COMPONENT: GATEWAY})
    settings = names.gateway_settings(service.name)
    longest = ceil(service.spec.routing.request_timeout.seconds)
    mounts: list[Body] = [{"name": "settings", "mountPath": SETTINGS, "readOnly": True}]
    volumes: list[Body] = [{"name": "settings", "configMap": {"name": settings}}]
    if service.spec.routing.api_keys is not None:
        mounts.append({"name": "keys", "mountPath": KEYS_FOLDER, "readOnly": True})
        volumes.append({"name": "keys", "secret": {"secretName": service.spec.routing.api_keys.secret_name}})
    container = {
        "name": "gateway",
        "image": site.gateway_image,
        "imagePullPolicy": site.image_pull_policy,
        "command": [*FIRST_PROCESS, "steelyard-gateway"],
        "args": [
            *("--config", f"{SETTINGS}/{FILE}"),
            *("--port", str(GATEWAY_PORT), "--metrics-port", str(GATEWAY_METRICS_PORT)),
            *("--drain-timeout", str(longest)),
        ],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "ports": [
            {"name": "http", "containerPort": GATEWAY_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": GATEWAY_METRICS_PORT, "protocol": "TCP"},
        ],
        "volumeMounts": mounts,
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": security.CONTAINER,
        "lifecycle": LIFECYCLE,
        # Probes are served apart from the data path: overload is answered with 429, never with a restart (E06).
        "readinessProbe": _probe("/ready", period=2, failures=2),
        "livenessProbe": {**_probe("/live", period=5, failures=6), **STANDSTILL},
    }
    spec: dict[str, Any] = {
        "serviceAccountName": settings,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": longest + EXIT_SECONDS,
        "securityContext": security.POD,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": gateway_labels(service)},
            }
        ],
        "containers": [container],
        "volumes": volumes,
        **pull_secrets(site),
    }
    body["spec"] = {
        "selector": {"matchLabels": gateway_labels(service)},
        "revisionHistoryLimit": 2,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": {"labels": {MANAGED_BY: MANAGER, **gateway_labels(service)}}, "spec": spec},
    }
    return body


def _probe(path: str, period: int, failures: int) -> Body:
    return {
        "httpGet": {"path": path, "port": GATEWAY_METRICS_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
