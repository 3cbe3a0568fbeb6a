"""What engines on accelerators have in common: files, variables, budgets of time, and how a replica lies over nodes."""

from dataclasses import dataclass
from importlib import resources
from math import ceil

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import DECODE, ENGINE_PORT, PREFILL
from steelyard.api.quantities import Quantity
from steelyard.api.service import InferenceService
from steelyard.build.engines.parts import Body
from steelyard.catalog.engines import ENGINES, version_told
from steelyard.catalog.formats import WEIGHTS
from steelyard.catalog.versions import Version, version

SETTINGS = "/etc/steelyard"
SCRATCH = "/tmp"  # noqa: S108 (a path in the container)
DRAIN_FILE = "drain.py"
DRAIN_SCRIPT = (resources.files(__package__) / "drain_script.py").read_text(encoding="utf-8")

KV_LEASE_SECONDS = 30
EXIT_SECONDS = 30  # from the end of the drain to the end of the process, weights and graphs being freed

# A start: image's libraries, compiling and graph capture, then the weights at the speed of a slow volume or network.
BASE_START_SECONDS = 600
READ_BYTES_PER_SECOND = 200e6
UNKNOWN_START_SECONDS = 3600
SIXTEEN_BITS = 16

GIB = 1 << 30
OFFLOAD_DEFAULT = Quantity("16Gi")

# Keys of blocks that processes share must not depend on the process: LMCache hashes with Python's own hash(), vLLM before its
# fixed seed began a chain of blocks with random bytes.
SAME_HASHES: Body = {"name": "PYTHONHASHSEED", "value": "0"}

SCRATCH_VOLUME: Body = {"name": "tmp", "emptyDir": {}}
SCRATCH_MOUNT: Body = {"name": "tmp", "mountPath": SCRATCH}


@dataclass(frozen=True)
class Spread:
    """How one replica lies over nodes: pods, and accelerators of each pod."""

    nodes: int
    per_pod: int


def spread(service: InferenceService, role_name: str, accelerator: Accelerator | None) -> Spread:
    """Spread a replica over as few nodes as hold it; `decide` has seen to it that they share evenly."""
    wanted = service.spec.parallelism_of(role_name).accelerators
    per_node = accelerator.spec.per_node if accelerator is not None and accelerator.spec.resource else wanted
    nodes = ceil(wanted / per_node)
    return Spread(nodes, ceil(wanted / nodes))


def version_of(service: InferenceService) -> Version:
    """The engine's version: the written one, else that of the image's tag, else the one that builders write flags for."""
    engine = service.spec.engine
    told = version(engine.version) or version_told(engine.name, engine.image)
    return told or version(ENGINES[engine.name].version) or ()


def hands_over(role_name: str) -> bool:
    """Whether the role's pods exchange KV state with others."""
    return role_name in (PREFILL, DECODE)


def startup_seconds(service: InferenceService, role_name: str) -> int:
    """Longest time a start may take, by the bytes of the weights; an hour where the model's size is not known."""
    shape = service.spec.model.shape
    if shape is None or shape.parameters is None:
        return UNKNOWN_START_SECONDS
    written = service.spec.quantization_of(role_name)
    name = written.weights or "auto"
    bits = WEIGHTS[name].bits if written.source != "Load" and name in WEIGHTS else SIXTEEN_BITS
    return BASE_START_SECONDS + ceil(shape.parameters * bits / 8 / READ_BYTES_PER_SECOND)


def lmcache_env(service: InferenceService, spread: Spread) -> tuple[Body, ...]:
    """Give LMCache's variables: memory of each process, in GiB, the shared server, and keys that are the same in every process."""
    offload = service.spec.cache.offload
    size = offload_bytes_of_rank(service, spread) / GIB
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


def offload_bytes(service: InferenceService) -> int:
    """Bytes of its own memory that one pod gives to keys and values beyond the accelerator."""
    offload = service.spec.cache.offload
    return (offload.memory or OFFLOAD_DEFAULT).whole if offload.kind in ("cpu", "lmcache", "mooncake") else 0


def offload_bytes_of_rank(service: InferenceService, spread: Spread) -> int:
    """Bytes that each process of a pod may take of them: one process an accelerator, and each makes a pool of its own."""
    return offload_bytes(service) // spread.per_pod


def shared_memory(per_pod: int, region: int = 0) -> Quantity:
    """Size of /dev/shm where the user says nothing: 1Gi and 1Gi more for each accelerator, and what the engine keeps there."""
    return Quantity(f"{1 + per_pod + ceil(region / GIB)}Gi")
