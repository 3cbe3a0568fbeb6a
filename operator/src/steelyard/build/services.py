"""Services: one for clients, and a headless one a role, which gives the engines of that role stable names."""

from steelyard.api import names
from steelyard.api.labels import COMPONENT, ENGINE_PORT, GATEWAY_METRICS_PORT, GATEWAY_PORT, KV_PORT, ROLE, SERVICE
from steelyard.api.service import InferenceService
from steelyard.build.meta import ENGINE, GATEWAY, Body, child, gateway_labels


def client(service: InferenceService) -> Body:
    """The address that clients use: `http://<name>.<namespace>.svc:8000/v1`."""
    body = child(service, "v1", "Service", names.gateway(service.name), {COMPONENT: GATEWAY})
    body["spec"] = {
        "type": "ClusterIP",
        "selector": gateway_labels(service),
        "ports": [_port("http", GATEWAY_PORT), _port("metrics", GATEWAY_METRICS_PORT)],
    }
    return body


def role(service: InferenceService, role_name: str, grouped: bool) -> Body:
    """The engines that do this role now, by the role label (not by pool).

    Where replicas are `grouped`, LWS takes this Service, which has its set's name, for the one that names the leaders. Followers
    look for their leader by it before any of them can be ready, so it tells of pods that are not; gateways do not ask it, they
    watch pods and their readiness.
    """
    body = child(service, "v1", "Service", names.engines(service.name, role_name), {COMPONENT: ENGINE})
    body["spec"] = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "selector": {SERVICE: service.name, COMPONENT: ENGINE, ROLE: role_name},
        "ports": [_port("http", ENGINE_PORT), _port("kv", KV_PORT)],
        **({"publishNotReadyAddresses": True} if grouped else {}),
    }
    return body


def _port(name: str, number: int) -> Body:
    return {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}
