"""Four doors through which a typed setting could be changed behind its field's back: args, env, template, mounts.

Each finding names the place, the flag or variable, and the field that owns the setting. The rule exists because two values
for one setting end in the engine's last-one-wins, where the operator plans with the other one (C32). The value of a flag or
variable is never told: it may be a secret, and findings stand in status and events.
"""

import re
from collections.abc import Iterator
from posixpath import normpath

from steelyard.api.engine import EnvVar
from steelyard.api.labels import COMPONENT, GROUP, MANAGED_BY
from steelyard.api.roles import PodTemplate, TemplateContainer
from steelyard.api.service import InferenceService
from steelyard.catalog.engines import ENGINES, flag_owner

Finding = tuple[str, str, str]  # field, value, problem

ENGINE_CONTAINER = "engine"
OWN_CONTAINERS = frozenset({"weights"})  # init container of ours
OWN_VOLUMES = frozenset({"models", "settings", "tmp"})
OWN_VOLUME_PREFIX = "steelyard-"
OWN_PATHS = ("/models", "/etc/steelyard", "/tmp")  # noqa: S108 (mount points of the engine's container)
OWN_PREFIXES = (f"{GROUP}/", "steelyard.dev/")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (a path in the container)
ADAPTERS = "/adapters"
HIDDEN = "(hidden)"


def found(service: InferenceService) -> Iterator[Finding]:
    """Look through all four doors of the service and of each of its roles."""
    engine = service.spec.engine
    known = engine.image is None and ENGINES[engine.name].every_flag_known
    yield from _args("spec.engine.args", engine.name, engine.args, known)
    yield from _env("spec.engine.env", engine.name, engine.env)
    for role, spec in service.spec.roles.items():
        shared = spec.shared_memory is not None or not ENGINES[engine.name].every_flag_known
        own_paths = (*OWN_PATHS, SHARED_MEMORY, ADAPTERS) if shared else OWN_PATHS
        yield from _template(f"spec.{role}.template", role, spec.template, engine.name, own_paths)


def _args(field: str, engine: str, args: tuple[str, ...], known: bool) -> Iterator[Finding]:
    """Refuse flags that a typed field owns, flags that a variable spells, and, where the engine is the one that we know,
    all others but the few that are the user's: each of its flags is known.

    An unknown argument would end every start with a usage message in a log that nobody reads (C27, G08). The kubelet
    puts variables into arguments before the engine sees them, so `$(A)` may become any flag.
    """
    for index, argument in enumerate(args):
        owned = flag_owner(engine, argument)
        if owned is None:
            value_of_last = index > 0 and args[index - 1].startswith("-") and "=" not in args[index - 1]
            if known and argument.split("=", 1)[0] in ENGINES[engine].users_flags:
                continue
            if known and (argument.startswith("-") or not value_of_last):  # a value was judged with its flag
                problem = (
                    "the engine has no such flag; leave it out, or name the image that has it in spec.engine.image"
                )
                yield f"{field}[{index}]", _shown(argument), problem
            elif argument.startswith(("-", "$(")) and "$(" in argument.split("=", 1)[0]:
                problem = "a variable may spell any flag; write the flag out, and the variable behind its ="
                yield f"{field}[{index}]", _shown(argument), problem
            continue
        flag, owner = owned
        remedy = f"set {owner} instead" if owner else "leave it out, the operator sets it"
        yield f"{field}[{index}]", _shown(argument), f"{flag} belongs to a typed field; {remedy}"


def _shown(argument: str) -> str:
    """Name a flag without its value; an argument that is no flag is a value."""
    return re.split(r"[=\s]", argument, maxsplit=1)[0] if argument.startswith(("-", "$(")) else HIDDEN


def _env(field: str, engine: str, env: tuple[EnvVar, ...]) -> Iterator[Finding]:
    owners = ENGINES[engine].variables
    for variable in env:
        if variable.name not in owners:
            continue
        owner = owners[variable.name]
        problem = (
            f"it belongs to a typed field; set {owner} instead"
            if owner
            else "the operator sets it from the pod, since peers connect to it; leave it out"
        )
        yield f"{field}.{variable.name}", HIDDEN if variable.value else "(reference)", problem


def _template(
    field: str, role: str, template: PodTemplate, engine: str, own_paths: tuple[str, ...]
) -> Iterator[Finding]:
    for kind, entries in (("labels", template.metadata.labels), ("annotations", template.metadata.annotations)):
        for key, value in entries.items():
            if key.startswith(OWN_PREFIXES) or key in (MANAGED_BY, COMPONENT):
                yield f"{field}.metadata.{kind}.{key}", value, "the operator's own key; leave it out"
    for volume in template.spec.volumes:
        if volume.name in OWN_VOLUMES or volume.name.startswith(OWN_VOLUME_PREFIX):
            yield f"{field}.spec.volumes", volume.name, "the engine's own volume has that name; choose another"
    for container in template.spec.containers:
        place = f"{field}.spec.containers[{container.name}]"
        if container.name == ENGINE_CONTAINER:
            yield from _engine_container(place, role, container, engine, own_paths)
        elif container.name in OWN_CONTAINERS:
            yield place, container.name, "a container of the operator has that name; choose another"
        elif container.image is None:
            yield f"{place}.image", "(absent)", "a sidecar needs an image; name one"


def _engine_container(
    place: str, role: str, container: TemplateContainer, engine: str, own_paths: tuple[str, ...]
) -> Iterator[Finding]:
    owners = {
        "image": (container.image, "spec.engine.image"),
        "command": (next(iter(container.command), ""), "spec.engine.name"),  # what follows may hold secrets
        "args": ("(set)" if container.args else "", "spec.engine.args"),
        "resources": ("(set)" if container.resources is not None else "", f"spec.{role}.resources"),
    }
    for name, (value, owner) in owners.items():
        if value:
            yield f"{place}.{name}", value, f"it belongs to {owner}; set that instead"
    yield from _env(f"{place}.env", engine, container.env)
    for mount in container.volume_mounts:
        path = "/" + normpath(mount.mount_path).lstrip("/")  # two leading slashes are a path of their own to POSIX
        over = f"{path.rstrip('/')}/"
        if any(f"{own}/".startswith(over) or over.startswith(f"{own}/") for own in own_paths):
            yield f"{place}.volumeMounts", mount.mount_path, "the engine's own files are there; choose another path"
