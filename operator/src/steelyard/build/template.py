"""Merge a role's pod template into the pod that the operator built: a fixed set of fields, containers by name.

The types (`api/roles.py`) admit no other field and `decide/smuggling.py` refuses the operator's own names, so the merge
only ever adds. Sidecars get the same security profile as the engine.
"""

import copy

from steelyard.api.engine import EnvVar
from steelyard.api.resources import Resources
from steelyard.api.roles import PodTemplate, TemplateContainer
from steelyard.build import security
from steelyard.build.meta import Body

ENGINE_CONTAINER = "engine"


def merged(pod: Body, template: PodTemplate) -> Body:
    """Give a new pod template with the user's additions."""
    result = copy.deepcopy(pod)
    for kind in ("labels", "annotations"):
        if both := {**getattr(template.metadata, kind), **result["metadata"].get(kind, {})}:
            result["metadata"][kind] = both
    spec, wish = result["spec"], template.spec.manifest()
    if wish.get("nodeSelector"):
        spec["nodeSelector"] = {**wish["nodeSelector"], **spec.get("nodeSelector", {})}
    for name in ("affinity", "priorityClassName", "runtimeClassName", "schedulerName"):
        if wish.get(name):
            spec[name] = wish[name]
    for name in ("tolerations", "topologySpreadConstraints"):
        if wish.get(name):
            spec[name] = wish[name]
    if secrets := [one for one in wish.get("imagePullSecrets", []) if one not in spec.get("imagePullSecrets", [])]:
        spec["imagePullSecrets"] = [*spec.get("imagePullSecrets", []), *secrets]
    spec["volumes"] = [*spec["volumes"], *wish.get("volumes", [])]
    for container in template.spec.containers:
        if container.name == ENGINE_CONTAINER:
            _extend_engine(spec["containers"][0], container)
        else:
            spec["containers"].append(_sidecar(container))
    return result


def variables(env: tuple[EnvVar, ...]) -> list[Body]:
    """Give environment variables in Kubernetes' form."""
    return [variable.manifest() for variable in env]


def amounts(resources: Resources) -> Body:
    """Give resources in Kubernetes' form, empty kinds left out."""
    return {kind: dict(named) for kind, named in resources.manifest().items() if named}


def _extend_engine(engine: Body, addition: TemplateContainer) -> None:
    """Add variables and mounts to the engine's container; a later variable of the same name replaces the earlier."""
    added = {variable["name"]: variable for variable in variables(addition.env)}
    engine["env"] = [*(v for v in engine["env"] if v["name"] not in added), *added.values()]
    engine["volumeMounts"] = [*engine["volumeMounts"], *(mount.manifest() for mount in addition.volume_mounts)]


def _sidecar(container: TemplateContainer) -> Body:
    body: Body = {"name": container.name, "image": container.image, "securityContext": security.SIDECAR}
    for name in ("command", "args"):
        if value := getattr(container, name):
            body[name] = list(value)
    if container.env:
        body["env"] = variables(container.env)
    if container.resources is not None:
        body["resources"] = amounts(container.resources)
    if container.volume_mounts:
        body["volumeMounts"] = [mount.manifest() for mount in container.volume_mounts]
    return body
