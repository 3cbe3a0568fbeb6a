"""The embedded engine (`steelyard-engine`), both backends: `llama-cpp` computes, `simulated` keeps time.

Its flags are in docs/design/interfaces.md. A pod does not know its role, so both roles get the same command but for
their own batching and processor share.
"""

import json
from math import ceil, floor

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import ENGINE_PORT, KV_PORT
from steelyard.api.resources import Resources
from steelyard.api.roles import Role
from steelyard.api.service import InferenceService
from steelyard.build.engines.parts import POD_IDENTITY, PORTS, Body, Parts
from steelyard.build.engines.weights import adapter_location, adapter_volumes, weights
from steelyard.build.meta import FIRST_PROCESS
from steelyard.catalog.engines import ENGINES
from steelyard.decide.feasibility.service import SINK_TOKENS
from steelyard.decide.profile import Profile, roofline
from steelyard.decide.site import Site

SETTINGS = "/etc/steelyard"
PROFILE_FILE = "profile.json"
KV_LEASE_SECONDS = 30
EXIT_SECONDS = 10  # from the end of the drain to the end of the process
KV_TYPES = {"int8": "q8_0", "int4": "q4_0"}  # the engine's names; 16 bits need none
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
    init: tuple[Body, ...] = ()
    settings: dict[str, str] = {}
    if backend == "simulated":
        args += ["--profile", f"{SETTINGS}/{PROFILE_FILE}"]
        content = profile(service, role_name, accelerator).manifest()
        settings[PROFILE_FILE] = json.dumps(content, indent=2) + "\n"
        mounts.append({"name": "settings", "mountPath": SETTINGS, "readOnly": True})
    else:
        model = weights(service, site, role_name)
        volumes += model.volumes
        mounts += model.mounts
        init = model.init_containers
        args += ["--model", model.location]
        args += _cache(service, role_name)
        held, seen = adapter_volumes(service)
        volumes += held
        mounts += seen
    args += [*_batching(service, role_name), *_window(service), *_speculation(service), *_adapters(service)]
    args += ["--on-kv-failure", spec.transfer.on_failure, "--kv-lease", str(KV_LEASE_SECONDS)]
    args += ["--drain-timeout", str(drain), "--threads", str(threads(role)), "--advertise-host", "$(POD_IP)"]
    return Parts(
        image=image,
        command=(*FIRST_PROCESS, "steelyard-engine"),
        args=(*args, *spec.engine.args),
        env=POD_IDENTITY,
        ports=PORTS,
        volumes=tuple(volumes),
        mounts=tuple(mounts),
        init_containers=init,
        settings=settings,
        startup_seconds=STARTUP_SECONDS,
        drain_seconds=drain + KV_LEASE_SECONDS + EXIT_SECONDS,
        accelerators=service.spec.parallelism_of(role_name).accelerators,
    )


def profile(service: InferenceService, role_name: str, accelerator: Accelerator | None) -> Profile:
    """Compute the simulated engine's times; `decide/accept.py` has seen to it that the figures are there."""
    if accelerator is None:
        raise ValueError(f"no Accelerator is known for role {role_name}; accept refuses such a service")
    return roofline(service, role_name, accelerator)


def threads(role: Role) -> int:
    """Threads of one engine: the whole cores of its limit (else its request), at least one.

    More threads than cores spin against each other.
    """
    return cores(role.resources)


def cores(resources: Resources) -> int:
    """Count the whole cores of a container by the same rule."""
    cpu = resources.limits.get("cpu") or resources.requests.get("cpu")
    return max(1, floor(cpu.value)) if cpu is not None else 1


def _cache(service: InferenceService, role_name: str) -> list[str]:
    kind = KV_TYPES.get(service.spec.quantization_of(role_name).kv_cache or "auto")
    return ["--kv-type", kind] if kind else []


def _window(service: InferenceService) -> list[str]:
    eviction = service.spec.cache.eviction
    if eviction.policy != "streaming":
        return []
    return ["--sink", str(eviction.sink_tokens or SINK_TOKENS), "--recent", str(eviction.window_tokens)]


def _speculation(service: InferenceService) -> list[str]:
    """The simulated engine guesses as well as its profile says, whoever does it on a real one."""
    wish = service.spec.speculation
    if wish.method == "none":
        return []
    args = ["--speculation", "ngram" if wish.method == "ngram" else "draft", "--guesses", str(wish.guesses)]
    if wish.method == "ngram":
        return [*args, "--lookup", str(wish.lookup)]
    return [*args, "--draft-model", wish.model] if wish.model else args


def _adapters(service: InferenceService) -> list[str]:
    named = (f"{adapter.name}={adapter_location(adapter)}" for adapter in service.spec.model.adapters)
    return [text for one in named for text in ("--lora", one)]


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
