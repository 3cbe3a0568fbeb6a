"""SGLang: command line, variables and files of one role's engine.

Aggregated only: its hand-off between roles needs a router that sends each request to both at once with the address of
their meeting (its bootstrap protocol), which our gateway does not do yet. Tests have SGLang's own parser read what is
rendered here.
"""

import json
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import ENGINE_PORT, EVENTS_PORT
from steelyard.api.roles import Role
from steelyard.api.service import InferenceService
from steelyard.build.engines import accelerated
from steelyard.build.engines.parts import POD_IDENTITY, PORTS, Body, Parts
from steelyard.build.engines.weights import adapter_location, adapter_volumes, weights
from steelyard.decide import pod_memory
from steelyard.decide.pod_memory import Spread
from steelyard.decide.site import Site

GROUP_PORT = 29500
GAUGES = ("sglang:num_running_reqs", "sglang:num_queue_reqs")
KV_TYPES = {"none": "auto", "fp8": "fp8_e4m3"}
ALGORITHMS = {"ngram": "NGRAM", "draft": "STANDALONE", "eagle3": "EAGLE3", "mtp": "NEXTN"}


def parts(service: InferenceService, role_name: str, role: Role, accelerator: Accelerator | None, site: Site) -> Parts:
    """Build the container of one role's engine."""
    del role
    model = weights(service, site, role_name)
    spread = pod_memory.spread(service, role_name, accelerator)
    volumes, mounts = adapter_volumes(service)
    drain, drained = accelerated.drain_command(service, role_name, GAUGES)
    args = ["--model-path", model.location, *(("--revision", model.revision) if model.revision else ())]
    args += [*_serving(service, role_name), *_quantization(service, role_name), *_batching(service, role_name)]
    args += [*_cache(service, role_name, spread), *_speculation(service), *_adapters(service)]
    follower: list[str] = []
    if spread.nodes > 1:
        group = ["--nnodes", str(spread.nodes), "--dist-init-addr", f"$(LWS_LEADER_ADDRESS):{GROUP_PORT}"]
        follower = [*args, *group, "--node-rank", "$(LWS_WORKER_INDEX)", *service.spec.engine.args]
        args += [*group, "--node-rank", "0"]
    shared = accelerated.lmcache_env(service, spread) if service.spec.cache.offload.kind == "lmcache" else ()
    events: tuple[Body, ...] = ()
    if service.spec.cache.events:
        events = ({"name": "events", "containerPort": EVENTS_PORT, "protocol": "TCP"},)
    return Parts(
        image=service.spec.engine.image or site.image_of("sglang"),
        command=("python3", "-m", "sglang.launch_server"),
        args=(*args, *service.spec.engine.args),
        env=(*POD_IDENTITY, *accelerated.scratch_env(), *model.env, *shared),
        ports=(*PORTS, *events),
        volumes=(*model.volumes, *volumes, accelerated.SCRATCH_VOLUME),
        mounts=(
            *model.mounts,
            *mounts,
            accelerated.SCRATCH_MOUNT,
            {"name": "settings", "mountPath": accelerated.SETTINGS, "readOnly": True},
        ),
        init_containers=model.init_containers,
        settings={accelerated.DRAIN_FILE: accelerated.DRAIN_SCRIPT},
        startup_seconds=accelerated.startup_seconds(service, role_name),
        drain_seconds=drained + accelerated.EXIT_SECONDS,
        live_path="/health",
        drain_command=drain,
        accelerators=spread.per_pod,
        nodes=spread.nodes,
        follower_args=tuple(follower),
        extra_memory=pod_memory.offload_bytes(service),
        shared_memory=pod_memory.shared_memory(service, role_name, spread),
    )


def _serving(service: InferenceService, role_name: str) -> list[str]:
    spec, ways = service.spec, service.spec.parallelism_of(role_name)
    args = ["--served-model-name", service.served_name, "--host", "0.0.0.0", "--port", str(ENGINE_PORT)]
    args += ["--context-length", str(spec.model.context_length), "--enable-metrics"]
    if spec.model.trust_remote_code:
        args.append("--trust-remote-code")
    if spec.model.uri.startswith("s3://"):
        args += ["--load-format", "runai_streamer"]
    if spec.engine.memory_utilization is not None:
        args += ["--mem-fraction-static", f"{spec.engine.memory_utilization:g}"]
    tensor, data = ways.tensor or 1, ways.data or 1
    if tensor * data != 1:
        args += ["--tp-size", str(tensor * data)]  # its data-parallel attention divides the tensor-parallel group
    if data != 1:
        args += ["--dp-size", str(data), "--enable-dp-attention"]
    if ways.pipeline != 1:
        args += ["--pp-size", str(ways.pipeline)]
    if ways.expert:
        args += ["--ep-size", str(tensor * data)]
    return args


def _quantization(service: InferenceService, role_name: str) -> list[str]:
    formats = service.spec.quantization_of(role_name)
    args: list[str] = []
    if formats.source == "Load" and formats.weights == "fp8":
        args += ["--quantization", "fp8"]
    if formats.kv_cache in KV_TYPES:
        args += ["--kv-cache-dtype", KV_TYPES[formats.kv_cache]]
    return args


def _batching(service: InferenceService, role_name: str) -> list[str]:
    batching = service.spec.batching_of(role_name)
    chunk = batching.max_batch_tokens if batching.strategy == "chunked" else -1
    return [
        *("--max-running-requests", str(batching.max_sequences)),
        *("--max-prefill-tokens", str(batching.max_batch_tokens), "--chunked-prefill-size", str(chunk)),
    ]


def _cache(service: InferenceService, role_name: str, spread: Spread) -> list[str]:
    cache = service.spec.cache
    args: list[str] = []
    if cache.prefix_reuse is False:
        args.append("--disable-radix-cache")
    if cache.block_tokens is not None:
        args += ["--page-size", str(cache.block_tokens)]
    if cache.kv_tokens is not None:
        args += ["--max-total-tokens", str(cache.kv_tokens)]
    if cache.events:
        events = {"publisher": "zmq", "endpoint": f"tcp://*:{EVENTS_PORT}", "topic": f"kv@{service.served_name}"}
        args += ["--kv-events-config", _json(events)]
    if cache.offload.kind in ("cpu", "mooncake"):
        share = pod_memory.offload_bytes_of_rank(service, spread)
        if cache.offload.kind == "mooncake":
            share //= 2  # what goes to the store passes through the process' own cache: one half for each
        gigabytes = share // pod_memory.GIGABYTE
        args += ["--enable-hierarchical-cache", "--hicache-size", str(gigabytes)]
    if cache.offload.kind == "mooncake":
        store = {
            "master_server_address": cache.offload.address,
            "metadata_server": "P2PHANDSHAKE",
            "protocol": service.spec.transfer.network,
            "device_name": "",
            # It divides this by the tensor-parallel degree of its attention; without it each group would give 4 GiB more.
            "global_segment_size": share * (service.spec.parallelism_of(role_name).tensor or 1),
        }
        args += ["--hicache-storage-backend", "mooncake", "--hicache-storage-backend-extra-config", _json(store)]
    if cache.offload.kind == "lmcache":
        args.append("--enable-lmcache")
    return args


def _speculation(service: InferenceService) -> list[str]:
    wish = service.spec.speculation
    if wish.method == "none":
        return []
    args = ["--speculative-algorithm", ALGORITHMS[wish.method], "--speculative-num-draft-tokens", str(wish.guesses + 1)]
    if wish.model is not None:
        args += ["--speculative-draft-model-path", wish.model]
    if wish.method == "ngram":
        return [*args, "--speculative-ngram-max-trie-depth", str(wish.lookup)]
    return [*args, "--speculative-num-steps", str(wish.guesses), "--speculative-eagle-topk", "1"]


def _adapters(service: InferenceService) -> list[str]:
    adapters = service.spec.model.adapters
    if not adapters:
        return []
    args = ["--enable-lora", "--max-loras-per-batch", str(min(len(adapters), 8))]
    args += ["--max-lora-rank", str(max(adapter.rank or 16 for adapter in adapters))]
    return [*args, "--lora-paths", *(f"{adapter.name}={adapter_location(adapter)}" for adapter in adapters)]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
