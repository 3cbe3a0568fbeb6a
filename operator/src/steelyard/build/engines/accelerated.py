"""What engines on accelerators have in common: files, variables, and budgets of time."""

from importlib import resources
from math import ceil

from steelyard.api.labels import DECODE, ENGINE_PORT, PREFILL
from steelyard.api.model import HubSource
from steelyard.api.service import InferenceService
from steelyard.build.engines.parts import Body
from steelyard.catalog.engines import ENGINES, version_told
from steelyard.catalog.formats import WEIGHTS
from steelyard.catalog.versions import Version, version
from steelyard.decide import pod_memory
from steelyard.decide.feasibility.service import known_shape
from steelyard.decide.pod_memory import Spread

SETTINGS = "/etc/steelyard"
SCRATCH = "/tmp"  # noqa: S108 (a path in the container)
DRAIN_FILE = "drain.py"
DRAIN_SCRIPT = (resources.files(__package__) / "drain_script.py").read_text(encoding="utf-8")

KV_LEASE_SECONDS = 30
EXIT_SECONDS = 30  # from the end of the drain to the end of the process, weights and graphs being freed

# A start: image's libraries, compiling and graph capture, then the weights at the speed of a slow volume, or of a hub that is
# far away where the engine itself fetches them.
BASE_START_SECONDS = 600
READ_BYTES_PER_SECOND = 200e6
FETCHED_BYTES_PER_SECOND = 50e6
UNKNOWN_START_SECONDS = 3600
SIXTEEN_BITS = 16

# Keys of blocks that processes share must not depend on the process: LMCache hashes with Python's own hash(), vLLM before its
# fixed seed began a chain of blocks with random bytes.
SAME_HASHES: Body = {"name": "PYTHONHASHSEED", "value": "0"}

SCRATCH_VOLUME: Body = {"name": "tmp", "emptyDir": {}}
SCRATCH_MOUNT: Body = {"name": "tmp", "mountPath": SCRATCH}


def version_of(service: InferenceService) -> Version:
    """The engine's version: the written one, else that of the image's tag, else the one that builders write flags for."""
    engine = service.spec.engine
    told = version(engine.version) or version_told(engine.name, engine.image)
    return told or version(ENGINES[engine.name].version) or ()


def hands_over(role_name: str) -> bool:
    """Whether the role's pods exchange KV state with others."""
    return role_name in (PREFILL, DECODE)


def startup_seconds(service: InferenceService, role_name: str) -> int:
    """Longest time a start may take, by the bytes of the weights; an hour where the model's size is not known.

    The size is that which the service writes, else the catalogue's for a model of that name. A cache is filled before the start.
    """
    model, known = service.spec.model, known_shape(service.spec.model)
    written = model.shape.parameters if model.shape is not None else None
    parameters = written or (known[0].parameters if known is not None else None)
    if parameters is None:
        return UNKNOWN_START_SECONDS
    wish = service.spec.quantization_of(role_name)
    stored = known[1] if known is not None else None
    name = (stored if wish.source == "Load" or wish.weights in (None, "auto") else wish.weights) or "none"
    bits = WEIGHTS[name].bits if name in WEIGHTS else SIXTEEN_BITS
    fetched = isinstance(model.source, HubSource) and model.cache.kind == "none" and wish.source != "Job"
    rate = FETCHED_BYTES_PER_SECOND if fetched else READ_BYTES_PER_SECOND
    return BASE_START_SECONDS + ceil(parameters * bits / 8 / rate)


def lmcache_env(service: InferenceService, spread: Spread) -> tuple[Body, ...]:
    """Give LMCache's variables: memory of each process, in GiB, the shared server, and keys that are the same in every process."""
    offload = service.spec.cache.offload
    size = pod_memory.offload_bytes_of_rank(service, spread) / pod_memory.GIB
    env: list[Body] = [
        SAME_HASHES,
        {"name": "LMCACHE_LOCAL_CPU", "value": "True"},
        {"name": "LMCACHE_MAX_LOCAL_CPU_SIZE", "value": f"{size:.6f}".rstrip("0").rstrip(".")},
    ]
    if offload.address is not None:
        env.append({"name": "LMCACHE_REMOTE_URL", "value": f"lm://{offload.address}"})
    return tuple(env)


def lease_seconds(service: InferenceService, role_name: str) -> int:
    """How long finished state may wait on a pod until a decode pod fetches it."""
    return KV_LEASE_SECONDS if hands_over(role_name) and service.spec.connector in ("nixl", "http") else 0


def drain_command(
    service: InferenceService, role_name: str, gauges: tuple[str, ...], page: str | None = None
) -> tuple[tuple[str, ...], int]:
    """Give the command that waits before SIGTERM, and the seconds that it takes at most.

    `page` is the path of the engine's metrics where it is not /metrics.
    """
    lease = lease_seconds(service, role_name)
    longest = ceil(service.spec.routing.request_timeout.seconds) + lease
    place = ("--port", str(ENGINE_PORT), *(("--path", page) if page else ()))
    command = ("python3", f"{SETTINGS}/{DRAIN_FILE}", *place, "--lease", str(lease))
    return (*command, "--timeout", str(longest), *(word for gauge in gauges for word in ("--gauge", gauge))), longest


def scratch_env() -> tuple[Body, ...]:
    """Variables that send everything a library writes to the scratch volume: the root file system is read-only."""
    places = {
        "HOME": "",
        "XDG_CACHE_HOME": "/cache",
        "TRITON_CACHE_DIR": "/triton",
        "TORCHINDUCTOR_CACHE_DIR": "/inductor",
    }
    return tuple({"name": name, "value": SCRATCH + folder} for name, folder in places.items())


def rdma_devices(service: InferenceService, per_pod: int) -> dict[str, int]:
    """Count the remote-memory devices of one pod: one for each accelerator."""
    transfer = service.spec.transfer
    return {transfer.rdma_resource or "rdma/ib": per_pod} if transfer.network == "rdma" else {}
