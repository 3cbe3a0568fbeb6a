"""The embedded engine (`steelyard-engine`), both backends: `llama-cpp` computes, `simulated` keeps time.

Its flags are in docs/design/interfaces.md. A pod does not know its role, so both roles get the same command but for
their own batching and processor share.
"""

import json
from math import ceil, floor

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import ENGINE_PORT, KV_PORT
from steelyard.api.model import ModelShape, OciSource, PvcSource
from steelyard.api.roles import Role
from steelyard.api.service import InferenceService
from steelyard.build import security
from steelyard.build.engines.parts import Body, Parts
from steelyard.build.meta import FIRST_PROCESS
from steelyard.catalog.engines import ENGINES
from steelyard.decide.profile import Profile, roofline
from steelyard.decide.site import Site

MODELS = "/models"
SETTINGS = "/etc/steelyard"
PROFILE_FILE = "profile.json"
KV_LEASE_SECONDS = 30
EXIT_SECONDS = 10  # from the end of the drain to the end of the process
STARTUP_SECONDS = 1800  # reading large weights from a slow disk is no failure


def parts(service: InferenceService, role_name: str, role: Role, accelerator: Accelerator | None, site: Site) -> Parts:
    """Build the container of one role's engine."""
    spec = service.spec
    image = spec.engine.image or site.engine_image
    backend = ENGINES[spec.engine.name].backend
    drain = ceil(spec.routing.request_timeout.seconds)
    args = ["--backend", backend, "--served-name", service.served_name]
    volumes: list[Body] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[Body] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 (a path in the container)
    init: list[Body] = []
    settings: dict[str, str] = {}
    if backend == "simulated":
        args += ["--profile", f"{SETTINGS}/{PROFILE_FILE}"]
        content = profile(service, role_name, accelerator).manifest()
        settings[PROFILE_FILE] = json.dumps(content, indent=2) + "\n"
        mounts.append({"name": "settings", "mountPath": SETTINGS, "readOnly": True})
    else:
        weights, init, path = _weights(service, site)
        volumes.append(weights)
        mounts.append({"name": "models", "mountPath": MODELS, "readOnly": True})
        args += ["--model", path]
    args += _batching(service, role_name)
    args += ["--on-kv-failure", spec.transfer.on_failure, "--kv-lease", str(KV_LEASE_SECONDS)]
    args += ["--drain-timeout", str(drain), "--threads", str(threads(role)), "--advertise-host", "$(POD_IP)"]
    return Parts(
        image=image,
        command=(*FIRST_PROCESS, "steelyard-engine"),
        args=(*args, *spec.engine.args),
        env=(
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ),
        ports=(
            {"name": "http", "containerPort": ENGINE_PORT, "protocol": "TCP"},
            {"name": "kv", "containerPort": KV_PORT, "protocol": "TCP"},
        ),
        volumes=tuple(volumes),
        mounts=tuple(mounts),
        init_containers=tuple(init),
        settings=settings,
        startup_seconds=STARTUP_SECONDS,
        drain_seconds=drain + KV_LEASE_SECONDS + EXIT_SECONDS,
    )


def profile(service: InferenceService, role_name: str, accelerator: Accelerator | None) -> Profile:
    """Compute the simulated engine's times; `decide/accept.py` has seen to it that the figures are there."""
    if accelerator is None:
        raise ValueError(f"no Accelerator is known for role {role_name}; accept refuses such a service")
    return roofline(accelerator.spec, service.spec.model.shape or ModelShape(), service.spec.kv_tokens_of(role_name))


def threads(role: Role) -> int:
    """Threads of one engine: the whole cores of its limit (else its request), at least one.

    More threads than cores spin against each other.
    """
    cpu = role.resources.limits.get("cpu") or role.resources.requests.get("cpu")
    return max(1, floor(cpu.value)) if cpu is not None else 1


def _batching(service: InferenceService, role_name: str) -> list[str]:
    batching = service.spec.batching_of(role_name)
    args = [
        *("--port", str(ENGINE_PORT), "--kv-port", str(KV_PORT)),
        *("--context-length", str(service.spec.model.context_length)),
        *("--max-sequences", str(batching.max_sequences)),
        *("--max-batch-tokens", str(batching.max_batch_tokens)),
        *("--kv-tokens", str(service.spec.kv_tokens_of(role_name))),
        *("--batching", str(batching.strategy)),
    ]
    if batching.max_wait is not None:
        args += ["--max-wait", f"{batching.max_wait.seconds:g}"]
    return args


def _weights(service: InferenceService, site: Site) -> tuple[Body, list[Body], str]:
    """Give the volume `models`, the init containers that fill it, and the path of the model inside it."""
    source = service.spec.model.source
    if isinstance(source, OciSource):
        fill = {
            "name": "weights",
            "image": source.image,
            "imagePullPolicy": site.image_pull_policy,
            "command": ["cp", "-r", "/weights/.", f"{MODELS}/"],
            "volumeMounts": [{"name": "models", "mountPath": MODELS}],
            "securityContext": security.CONTAINER,
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        }
        return {"name": "models", "emptyDir": {}}, [fill], _inside(source.path)
    if isinstance(source, PvcSource):
        claim = {"claimName": source.claim, "readOnly": True}
        return {"name": "models", "persistentVolumeClaim": claim}, [], _inside(source.path)
    raise ValueError(f"weights from {service.spec.model.uri} cannot be mounted; accept refuses such a service")


def _inside(path: str | None) -> str:
    return f"{MODELS}/{path}" if path else MODELS
