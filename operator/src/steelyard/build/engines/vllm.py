"""vLLM: command line, variables and files of one role's engine.

Only what a typed field says, or what serving needs, becomes a flag: what is not set is left to the engine. Flags are
those of the versions in `catalog/engines.py`; tests have vLLM's own parser read every command line rendered here.
"""

import json
from math import ceil
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import ENGINE_PORT, PREFILL
from steelyard.api.roles import Role
from steelyard.api.service import InferenceService
from steelyard.build.engines import accelerated, vllm_cache
from steelyard.build.engines.embedded import threads
from steelyard.build.engines.parts import POD_IDENTITY, PORTS, Body, Parts
from steelyard.build.engines.weights import adapter_location, adapter_volumes, weights
from steelyard.decide import pod_memory
from steelyard.decide.pod_memory import Spread
from steelyard.decide.site import Site

MEMORY_UTILIZATION = 0.9
DEFAULT_BLOCK = 16
SHUTDOWN_SECONDS = 60
GROUP_PORT = 29500
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")
LORA_SLOTS = 4  # adapters that one step may mix

RENAMED_IN = (0, 33)
KV_TYPES = {"none": "auto", "fp8": "fp8", "int8": "int8_per_token_head", "int4": "int4_per_token_head"}
LOAD_TYPES = {"fp8": "fp8_per_tensor", "int8": "int8_per_channel_weight_only", "nvfp4": "nvfp4_per_token"}


def parts(service: InferenceService, role_name: str, role: Role, accelerator: Accelerator | None, site: Site) -> Parts:
    """Build the container of one role's engine."""
    model = weights(service, site, role_name)
    spread = pod_memory.spread(service, role_name, accelerator)
    volumes, mounts = adapter_volumes(service)
    drain, drained = accelerated.drain_command(service, role_name, GAUGES)
    cached = vllm_cache.wiring(service, role_name, spread, accelerator)
    args = [model.location, *(("--revision", model.revision) if model.revision else ())]
    args += _serving(service, role_name, spread, accelerator)
    args += [*_quantization(service, role_name), *_batching(service, role_name), *_cache(service, role_name)]
    args += [*cached.args, *_speculation(service), *_adapters(service)]
    follower: list[str] = []
    if spread.nodes > 1:
        group = [
            "--nnodes",
            str(spread.nodes),
            "--master-addr",
            "$(LWS_LEADER_ADDRESS)",
            "--master-port",
            str(GROUP_PORT),
        ]
        follower = [*args, *group, "--node-rank", "$(LWS_WORKER_INDEX)", "--headless", *service.spec.engine.args]
        args += [*group, "--node-rank", "0"]
    plain = accelerator is not None and accelerator.spec.resource is None
    return Parts(
        image=service.spec.engine.image or site.image_of("vllm"),
        command=("vllm", "serve"),
        args=(*args, *service.spec.engine.args),
        env=(
            *POD_IDENTITY,
            *accelerated.scratch_env(),
            {"name": "VLLM_NO_USAGE_STATS", "value": "1"},
            {"name": "VLLM_CACHE_ROOT", "value": f"{accelerated.SCRATCH}/vllm"},
            *model.env,
            *_runner(service),
            *(_processors(role) if plain else ()),
            *cached.env,
        ),
        ports=(*PORTS, *cached.ports),
        volumes=(*model.volumes, *volumes, accelerated.SCRATCH_VOLUME),
        mounts=(
            *model.mounts,
            *mounts,
            accelerated.SCRATCH_MOUNT,
            {"name": "settings", "mountPath": accelerated.SETTINGS, "readOnly": True},
        ),
        init_containers=model.init_containers,
        settings={accelerated.DRAIN_FILE: accelerated.DRAIN_SCRIPT, **cached.files},
        startup_seconds=accelerated.startup_seconds(service, role_name),
        drain_seconds=drained + SHUTDOWN_SECONDS + accelerated.EXIT_SECONDS,
        live_path="/health",
        drain_command=drain,
        accelerators=spread.per_pod,
        nodes=spread.nodes,
        follower_args=tuple(follower),
        devices=accelerated.rdma_devices(service, spread.per_pod),
        extra_memory=pod_memory.offload_bytes(service),
        shared_memory=pod_memory.shared_memory(service, role_name, spread),
        capabilities=("IPC_LOCK",) if service.spec.transfer.network == "rdma" else (),
    )


def _serving(service: InferenceService, role_name: str, spread: Spread, accelerator: Accelerator | None) -> list[str]:
    spec, ways = service.spec, service.spec.parallelism_of(role_name)
    args = ["--served-model-name", service.served_name, "--port", str(ENGINE_PORT)]
    args += ["--max-model-len", str(spec.model.context_length), "--shutdown-timeout", str(SHUTDOWN_SECONDS)]
    if spec.model.trust_remote_code:
        args.append("--trust-remote-code")
    if spec.model.uri.startswith("s3://"):
        args += ["--load-format", "runai_streamer"]
    if accelerator is not None and accelerator.spec.resource is None:
        args += ["--dtype", "float32", "--enforce-eager"]
    else:
        args += ["--gpu-memory-utilization", f"{spec.engine.memory_utilization or MEMORY_UTILIZATION:g}"]
    for flag, number in (("tensor", ways.tensor), ("pipeline", ways.pipeline), ("data", ways.data)):
        if number != 1:
            args += [f"--{flag}-parallel-size", str(number)]
    if ways.expert:
        args.append("--enable-expert-parallel")
        if spread.nodes > 1 and accelerated.hands_over(role_name):
            # Prompts come in large batches and answers in small ones; each has its exchange of tokens between experts.
            exchange = "deepep_high_throughput" if role_name == PREFILL else "deepep_low_latency"
            args += ["--all2all-backend", exchange]
    return args


def _quantization(service: InferenceService, role_name: str) -> list[str]:
    formats = service.spec.quantization_of(role_name)
    args: list[str] = []
    if formats.source == "Load" and formats.weights in LOAD_TYPES:
        args += ["--quantization", LOAD_TYPES[formats.weights]]
    if formats.kv_cache in KV_TYPES:
        args += ["--kv-cache-dtype", KV_TYPES[formats.kv_cache]]
    if formats.attention != "auto":
        queries = formats.attention == "fp8"
        setting = {"use_prefill_query_quantization": queries, "disable_flashinfer_q_quantization": not queries}
        args += ["--attention-config", _json(setting)]
    return args


def _batching(service: InferenceService, role_name: str) -> list[str]:
    batching = service.spec.batching_of(role_name)
    chunks = _switch(service, "chunked-prefill", batching.strategy == "chunked")
    return [
        *("--max-num-seqs", str(batching.max_sequences)),
        *("--max-num-batched-tokens", str(batching.max_batch_tokens), chunks),
    ]


def _cache(service: InferenceService, role_name: str) -> list[str]:
    cache = service.spec.cache
    args: list[str] = []
    if cache.prefix_reuse is not None:
        args.append(_switch(service, "prefix-caching", cache.prefix_reuse))
    if cache.block_tokens is not None:
        args += ["--block-size", str(cache.block_tokens)]
    if cache.kv_tokens is not None:
        args += ["--num-gpu-blocks-override", str(ceil(cache.kv_tokens / (cache.block_tokens or DEFAULT_BLOCK)))]
    return args


def _speculation(service: InferenceService) -> list[str]:
    wish = service.spec.speculation
    if wish.method == "none":
        return []
    config: dict[str, Any] = {"method": "draft_model" if wish.method == "draft" else wish.method}
    config["num_speculative_tokens"] = wish.guesses
    if wish.model is not None:
        config["model"] = wish.model
    if wish.method == "ngram":
        config["prompt_lookup_max"] = wish.lookup
    return ["--speculative-config", _json(config)]


def _adapters(service: InferenceService) -> list[str]:
    adapters = service.spec.model.adapters
    if not adapters:
        return []
    args = ["--enable-lora", "--max-loras", str(min(len(adapters), LORA_SLOTS)), "--max-cpu-loras", str(len(adapters))]
    args += ["--max-lora-rank", str(max(adapter.rank or 16 for adapter in adapters))]
    return [*args, "--lora-modules", *(f"{adapter.name}={adapter_location(adapter)}" for adapter in adapters)]


def _runner(service: InferenceService) -> tuple[Body, ...]:
    runner = service.spec.engine.model_runner
    return () if runner == "Auto" else ({"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1" if runner == "V2" else "0"},)


def _processors(role: Role) -> tuple[Body, ...]:
    """On plain processors: as many threads as cores, bound to none, since a pod shares its node's."""
    return (
        {"name": "OMP_NUM_THREADS", "value": str(threads(role))},
        {"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"},
    )


def _switch(service: InferenceService, name: str, on: bool) -> str:
    """Spell an option that is on or off; what was `--no-enable-X` is `--disable-X` since 0.33."""
    if on:
        return f"--enable-{name}"
    return f"--disable-{name}" if accelerated.version_of(service) >= RENAMED_IN else f"--no-enable-{name}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
