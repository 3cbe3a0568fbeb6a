"""All children of one service, in the order in which they are applied, and the revision that keeps them.

The same function serves the operator and `steelyard render`. It is pure: the same service, hardware and installation
give the same manifests, byte for byte.
"""

from collections.abc import Mapping

from steelyard.api import names
from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import POOL, SPEC_HASH
from steelyard.api.service import InferenceService
from steelyard.build import disruption, gateway, gateway_settings, pods, policies, quantize, services
from steelyard.build.meta import Body, child
from steelyard.decide.fingerprint import digest
from steelyard.decide.quantizing import orders
from steelyard.decide.site import Site


def children(service: InferenceService, accelerators: Mapping[str, Accelerator | None], site: Site) -> list[Body]:
    """Build every child. `decide/accept.py` must have accepted the service."""
    spec = service.spec
    engines = [
        body
        for role in spec.roles
        for body in pods.deployment(service, role, accelerators.get(spec.accelerator_of(role)), site)
    ]
    grouped = {body["metadata"]["labels"][POOL] for body in engines if body["kind"] == "LeaderWorkerSet"}
    return [
        *gateway.account(service),
        gateway_settings.config_map(service, dict(accelerators)),
        *(body for body in engines if body["kind"] == "ConfigMap"),
        services.client(service),
        *(services.role(service, role, grouped=role in grouped) for role in spec.roles),
        *policies.network_policies(service, site, groups=bool(grouped)),
        *disruption.budgets(service),
        *(quantize.job(service, order, site) for order in orders(service)),
        *(body for body in engines if body["kind"] == "DaemonSet"),  # images begin to come before the first pod is made
        *(body for body in engines if body["kind"] not in ("ConfigMap", "DaemonSet")),
        gateway.deployment(service, site),
    ]


def revision(service: InferenceService, rendered: list[Body], spec_hash: str, number: int) -> Body:
    """Keep rendered children in a ControllerRevision, named by their content.

    Its data cannot be changed once written, so other content has another name; the highest number is in force.
    """
    name = names.child(service.name, digest(rendered))
    body = child(service, "apps/v1", "ControllerRevision", name)
    body["metadata"]["annotations"] = {SPEC_HASH: spec_hash}
    body["revision"] = number
    body["data"] = {"children": rendered}
    return body
