"""The memory of one pod of a role: what goes to offloaded keys and values, what lies in /dev/shm, and the least that is left.

A limit counts all three. What is offloaded comes on top of the limit that the user writes, /dev/shm does not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from steelyard.api.accelerator import Accelerator
from steelyard.api.quantities import Quantity
from steelyard.api.service import InferenceService
from steelyard.catalog.engines import ENGINES

GIB = 1 << 30
GIGABYTE = 10**9
OFFLOAD_DEFAULT = Quantity("16Gi")
LEAST = GIB  # bytes of an engine's own processes: libraries, tokenizer and queues of the smallest model take more

Finding = tuple[str, str, str]  # field, value, problem and remedy


@dataclass(frozen=True)
class Spread:
    """How one replica lies over nodes: pods, and accelerators of each pod."""

    nodes: int
    per_pod: int


def spread(service: InferenceService, role_name: str, accelerator: Accelerator | None) -> Spread:
    """Spread a replica over as few nodes as hold it; `accept` sees to it that they share evenly."""
    wanted = service.spec.parallelism_of(role_name).accelerators
    per_node = accelerator.spec.per_node if accelerator is not None and accelerator.spec.resource else wanted
    nodes = ceil(wanted / per_node)
    return Spread(nodes, ceil(wanted / nodes))


def offload_bytes(service: InferenceService) -> int:
    """Bytes of its own memory that one pod gives to keys and values beyond the accelerator."""
    offload = service.spec.cache.offload
    return (offload.memory or OFFLOAD_DEFAULT).whole if offload.kind in ("cpu", "lmcache", "mooncake") else 0


def offload_bytes_of_rank(service: InferenceService, of: Spread) -> int:
    """Bytes that each process of a pod may take of them: one process an accelerator, and each makes a pool of its own."""
    return offload_bytes(service) // of.per_pod


def offload_bytes_of_core(service: InferenceService, role_name: str, of: Spread) -> int:
    """Bytes for all processes of one engine core of vLLM, which divides them by their number: over all pods that it spans, and
    once for each copy of the attention part, since each of these has a core of its own."""
    ways = service.spec.parallelism_of(role_name)
    return offload_bytes_of_rank(service, of) * (ways.tensor or 1) * (ways.pipeline or 1)


def region_bytes(service: InferenceService, role_name: str, of: Spread) -> int:
    """Bytes that vLLM keeps in /dev/shm of one pod: its connector to the pod's own memory has the blocks of an engine core in a
    file there, and does not start where it finds less room than that (vllm/v1/kv_offload/cpu/shared_offload_region.py)."""
    if service.spec.engine.name != "vllm" or service.spec.cache.offload.kind != "cpu":
        return 0
    ways = service.spec.parallelism_of(role_name)
    cores = ceil(of.per_pod / ((ways.tensor or 1) * (ways.pipeline or 1)))
    return cores * offload_bytes_of_core(service, role_name, of)


def shared_memory(service: InferenceService, role_name: str, of: Spread) -> Quantity:
    """Size of /dev/shm where the user says nothing: 1Gi and 1Gi more for each accelerator, and what the engine keeps there."""
    return Quantity(f"{1 + of.per_pod + ceil(region_bytes(service, role_name, of) / GIB)}Gi")


def found(service: InferenceService, role_name: str, accelerator: Accelerator | None) -> Iterator[Finding]:
    """Find a share that an engine cannot count, a /dev/shm that cannot hold what is offloaded there, and a limit that cannot hold
    /dev/shm and the engine."""
    role, engine = service.spec.roles[role_name], ENGINES[service.spec.engine.name]
    if engine.backend:
        return  # it has no /dev/shm unless the user wants one, and says itself what does not fit
    of = spread(service, role_name, accelerator)
    if service.spec.engine.name == "sglang" and service.spec.cache.offload.kind in ("cpu", "mooncake"):
        least = of.per_pod * GIGABYTE * (2 if service.spec.cache.offload.kind == "mooncake" else 1)
        if offload_bytes(service) < least:
            problem = "sglang takes whole gigabytes for each accelerator of a pod"
            problem += f"; raise it to at least {_gibibytes(least)}"
            yield "spec.cache.offload.memory", str(service.spec.cache.offload.memory), problem
    region = region_bytes(service, role_name, of)
    shared = role.shared_memory or shared_memory(service, role_name, of)
    if shared.whole <= region:
        roomy = shared_memory(service, role_name, of)
        problem = (
            f"vllm keeps what it offloads there, {_gibibytes(region)}; raise it to at least {roomy}, or leave it out"
        )
        yield f"spec.{role_name}.sharedMemory", str(shared), problem
        return
    limit = role.resources.limits.get("memory")
    talk = shared.whole - region  # what is offloaded comes on top of the limit
    if limit is not None and limit.whole < talk + LEAST:
        told = f"a /dev/shm of {_gibibytes(talk)} counts as the pod's memory, and the engine needs {_gibibytes(LEAST)} itself"
        yield (
            f"spec.{role_name}.resources.limits.memory",
            str(limit),
            f"{told}; raise it to at least {_gibibytes(talk + LEAST)}"
            + (f", or lower spec.{role_name}.sharedMemory" if role.shared_memory is not None else ""),
        )


def _gibibytes(size: int) -> str:
    return f"{ceil(size / GIB)}Gi"
