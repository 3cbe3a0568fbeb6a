"""PodDisruptionBudgets: node drains take one pod of a pool at a time. They select the pool, as Deployments do."""

from steelyard.api import names
from steelyard.api.labels import COMPONENT, POOL
from steelyard.api.service import InferenceService
from steelyard.build.meta import ENGINE, GATEWAY, Body, child, engine_labels, gateway_labels


def budgets(service: InferenceService) -> list[Body]:
    """Build one budget a pool and one for the gateway."""
    found = []
    for role in service.spec.roles:
        labels = {COMPONENT: ENGINE, POOL: role}
        found.append(_budget(service, names.engines(service.name, role), labels, engine_labels(service, role)))
    name = names.gateway(service.name)
    found.append(_budget(service, name, {COMPONENT: GATEWAY}, gateway_labels(service)))
    return found


def _budget(service: InferenceService, name: str, labels: dict[str, str], selects: dict[str, str]) -> Body:
    body = child(service, "policy/v1", "PodDisruptionBudget", name, labels)
    body["spec"] = {"maxUnavailable": 1, "selector": {"matchLabels": selects}}
    return body
