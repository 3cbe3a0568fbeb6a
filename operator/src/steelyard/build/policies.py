"""NetworkPolicies, ingress only: one direction and one purpose each, so that a reader sees who may reach what and why.

| to | port | from | purpose |
|---|---|---|---|
| engines | 8000 | the service's gateway | requests |
| engines | 8000 | the Prometheus namespace | metrics |
| engines | 5600 | engines of the same service | KV hand-off over http |
| engines | every | engines of the same service | other hand-offs, pods of one replica: ports chosen at run time |
| further pods of replicas that span nodes | every | engines of the same service and their further pods | one replica's work |
| engines | 5557 | pods with the service's label | events about blocks, where they are published: they carry tokens |
| gateway | 8000 | anybody in the cluster | clients |
| gateway | 9090 | the Prometheus namespace, the operator's namespace | metrics and demand |

A pod that one policy selects refuses everything that no policy allows. Probes come from the node itself and pass.
"""

from steelyard.api import names
from steelyard.api.labels import (
    COMPONENT,
    ENGINE_PORT,
    EVENTS_PORT,
    FOLLOWER,
    GATEWAY_METRICS_PORT,
    GATEWAY_PORT,
    KV_PORT,
    SERVICE,
)
from steelyard.api.service import InferenceService
from steelyard.build.meta import ENGINE, Body, child, gateway_labels
from steelyard.decide.site import Site


def network_policies(service: InferenceService, site: Site, groups: bool = False) -> list[Body]:
    """Build the policies of the table; those for metrics only where a namespace may read them, that for further pods only
    where replicas are `groups` of pods."""
    engines = {SERVICE: service.name, COMPONENT: ENGINE}
    gateways = gateway_labels(service)
    kv_port = KV_PORT if service.spec.connector == "http" else None
    found = [
        _policy(service, "engine-requests", engines, ENGINE_PORT, [_pods(gateways)]),
        _policy(service, "engine-kv", engines, kv_port, [_pods(engines), *_followers(service, kv_port)]),
        _policy(service, "gateway-requests", gateways, GATEWAY_PORT, []),
    ]
    if groups:
        further = {SERVICE: service.name, COMPONENT: FOLLOWER}
        found.append(_policy(service, "engine-followers", further, None, [_pods(engines), _pods(further)]))
    if service.spec.cache.events:
        found.append(_policy(service, "engine-events", engines, EVENTS_PORT, [_pods({SERVICE: service.name})]))
    if site.prometheus_namespace:
        scrapers = [_namespace(site.prometheus_namespace)]
        found.append(_policy(service, "engine-metrics", engines, ENGINE_PORT, scrapers))
    readers = sorted({name for name in (site.prometheus_namespace, site.operator_namespace) if name})
    if readers:
        peers = [_namespace(name) for name in readers]
        found.append(_policy(service, "gateway-metrics", gateways, GATEWAY_METRICS_PORT, peers))
    return found


def _followers(service: InferenceService, kv_port: int | None) -> list[Body]:
    """The further pods of replicas that span nodes, which only engines on accelerators have."""
    return [] if kv_port is not None else [_pods({SERVICE: service.name, COMPONENT: FOLLOWER})]


def _policy(service: InferenceService, purpose: str, to: dict[str, str], port: int | None, peers: list[Body]) -> Body:
    body = child(service, "networking.k8s.io/v1", "NetworkPolicy", names.child(service.name, purpose))
    rule: Body = {"ports": [{"port": port, "protocol": "TCP"}]} if port is not None else {}
    if peers:  # none: everybody
        rule["from"] = peers
    body["spec"] = {"podSelector": {"matchLabels": to}, "policyTypes": ["Ingress"], "ingress": [rule]}
    return body


def _pods(labels: dict[str, str]) -> Body:
    return {"podSelector": {"matchLabels": labels}}


def _namespace(name: str) -> Body:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
