"""vLLM's KV connectors: the hand-off between roles, overflow and shared stores, and the events about blocks.

Several connectors at once are one MultiConnector, the hand-off first: it must see a request before a store does.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import EVENTS_PORT, KV_PORT, PREFILL
from steelyard.api.service import InferenceService
from steelyard.build.engines import accelerated
from steelyard.build.engines.parts import Body
from steelyard.decide import pod_memory
from steelyard.decide.pod_memory import Spread
from steelyard.decide.scale.spec import roles_may_change

MOONCAKE_FILE = "mooncake.json"
PEGAFLOW_PORT = 50055

# What UCX, under NIXL, may use: memory of GPUs needs its copiers, remote memory the reliable transports.
TRANSPORTS = {"tcp": "tcp,sm,self", "rdma": "rc,ud,sm,self"}
COPIERS = {"amd": "rocm_copy,rocm_ipc"}  # by the vendor of the GPU
OTHER_COPIERS = "cuda_copy,cuda_ipc"


@dataclass(frozen=True)
class Wiring:
    """What the connectors add to the engine's container."""

    args: tuple[str, ...] = ()
    env: tuple[Body, ...] = ()
    ports: tuple[Body, ...] = ()
    files: dict[str, str] = field(default_factory=dict)


def wiring(service: InferenceService, role_name: str, spread: Spread, accelerator: Accelerator | None) -> Wiring:
    """Wire up what the service's transfer and cache ask for in this role."""
    connectors: list[dict[str, Any]] = []
    env: list[Body] = []
    files: dict[str, str] = {}
    if accelerated.hands_over(role_name) and service.spec.connector == "nixl":
        connectors.append(_nixl(service, role_name))
        env += _nixl_env(service, accelerator)
    kind = service.spec.cache.offload.kind
    if kind == "cpu":
        connectors.append(
            _connector(
                "OffloadingConnector", cpu_bytes_to_use=pod_memory.offload_bytes_of_core(service, role_name, spread)
            )
        )
    elif kind == "lmcache":
        connectors.append(_connector("LMCacheConnectorV1"))
        env += accelerated.lmcache_env(service, spread)
    elif kind == "mooncake":
        connectors.append(_connector("MooncakeStoreConnector"))
        files[MOONCAKE_FILE] = _mooncake_file(service, spread)
        env.append(accelerated.SAME_HASHES)
        env.append({"name": "MOONCAKE_CONFIG_PATH", "value": f"{accelerated.SETTINGS}/{MOONCAKE_FILE}"})
    elif kind == "pegaflow":
        connectors.append({**_connector("PegaKVConnector"), "kv_connector_module_path": "pegaflow.connector"})
        env += _pegaflow_env()
    args: list[str] = []
    ports: list[Body] = []
    if connectors:
        args += ["--kv-transfer-config", _json(_together(service, connectors))]
    if service.spec.cache.events:
        events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{EVENTS_PORT}"}
        args += ["--kv-events-config", _json({**events, "topic": f"kv@{service.served_name}"})]
        ports.append({"name": "events", "containerPort": EVENTS_PORT, "protocol": "TCP"})
    return Wiring(tuple(args), tuple(env), tuple(ports), files)


def _connector(name: str, **extra: Any) -> dict[str, Any]:
    return {"kv_connector": name, "kv_role": "kv_both", **({"kv_connector_extra_config": extra} if extra else {})}


def _nixl(service: InferenceService, role_name: str) -> dict[str, Any]:
    """The pod gives KV, takes it, or both where it may change its role; 0.32 warns that later versions want one of the two."""
    connector = _connector("NixlConnector", kv_lease_duration=accelerated.KV_LEASE_SECONDS)
    if not roles_may_change(service):
        connector["kv_role"] = "kv_producer" if role_name == PREFILL else "kv_consumer"
    return connector


def _together(service: InferenceService, connectors: list[dict[str, Any]]) -> dict[str, Any]:
    whole = connectors[0] if len(connectors) == 1 else _connector("MultiConnector", connectors=connectors)
    return {**whole, "kv_load_failure_policy": service.spec.transfer.on_failure}


def _nixl_env(service: InferenceService, accelerator: Accelerator | None) -> list[Body]:
    copiers = COPIERS.get(accelerator.spec.vendor, OTHER_COPIERS) if accelerator is not None else OTHER_COPIERS
    return [
        {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "value": "$(POD_IP)"},
        {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": str(KV_PORT)},
        {"name": "UCX_TLS", "value": f"{TRANSPORTS[service.spec.transfer.network]},{copiers}"},
    ]


def _mooncake_file(service: InferenceService, spread: Spread) -> str:
    """Every process gives a segment of the store and reads this one file, so it tells the share of one."""
    offload = service.spec.cache.offload
    content = {
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": offload.address,
        "global_segment_size": pod_memory.offload_bytes_of_rank(service, spread),
        "protocol": service.spec.transfer.network,
        "device_name": "",
    }
    return json.dumps(content, indent=2) + "\n"


def _pegaflow_env() -> list[Body]:
    """The server is the node's: it shares the accelerator's memory with the engine, which the network could not."""
    return [
        accelerated.SAME_HASHES,
        {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "PEGAFLOW_HOST", "value": "http://$(HOST_IP)"},
        {"name": "PEGAFLOW_PORT", "value": str(PEGAFLOW_PORT)},
    ]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
