"""TensorRT-LLM (its PyTorch backend): a short command line, and a file of options in YAML.

Aggregated only: its hand-off between roles has an orchestrator of its own, which our gateway does not stand in for yet.
No package that can be installed here carries the schema of the file: tests compare it with the option names of version
1.2's source (`operator/tests/build/data`).
"""

from typing import Any

import yaml

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import ENGINE_PORT
from steelyard.api.roles import Role
from steelyard.api.service import InferenceService
from steelyard.build.engines import accelerated
from steelyard.build.engines.parts import POD_IDENTITY, PORTS, Parts
from steelyard.build.engines.weights import weights
from steelyard.decide import pod_memory
from steelyard.decide.pod_memory import Spread
from steelyard.decide.site import Site

OPTIONS_FILE = "options.yaml"
MEMORY_UTILIZATION = 0.9

# Its /metrics is JSON; Prometheus' text has a path of its own, which is there with `return_perf_metrics` only, and gauges of
# requests on it from 1.3 on, with `enable_iter_perf_stats`. Without them a pod that leaves waits for its longest request.
METRICS_PAGE = "/prometheus/metrics"
GAUGES = ("trtllm_num_requests_running", "trtllm_num_requests_waiting")


def parts(service: InferenceService, role_name: str, role: Role, accelerator: Accelerator | None, site: Site) -> Parts:
    """Build the container of one role's engine."""
    del role
    model = weights(service, site, role_name)
    spread = pod_memory.spread(service, role_name, accelerator)
    drain, drained = accelerated.drain_command(service, role_name, GAUGES, METRICS_PAGE)
    args = [model.location, *(("--revision", model.revision) if model.revision else ())]
    args += ["--served_model_name", service.served_name, "--host", "0.0.0.0", "--port", str(ENGINE_PORT)]
    args += ["--config", f"{accelerated.SETTINGS}/{OPTIONS_FILE}"]
    text = yaml.safe_dump(options(service, role_name, spread), sort_keys=False)
    return Parts(
        image=service.spec.engine.image or site.image_of("tensorrt-llm"),
        command=("trtllm-serve",),
        args=(*args, *service.spec.engine.args),
        env=(*POD_IDENTITY, *accelerated.scratch_env(), *model.env),
        ports=PORTS,
        volumes=(*model.volumes, accelerated.SCRATCH_VOLUME),
        mounts=(
            *model.mounts,
            accelerated.SCRATCH_MOUNT,
            {"name": "settings", "mountPath": accelerated.SETTINGS, "readOnly": True},
        ),
        init_containers=model.init_containers,
        settings={accelerated.DRAIN_FILE: accelerated.DRAIN_SCRIPT, OPTIONS_FILE: text},
        startup_seconds=accelerated.startup_seconds(service, role_name),
        drain_seconds=drained + accelerated.EXIT_SECONDS,
        live_path="/health",
        metrics_path=METRICS_PAGE,
        drain_command=drain,
        accelerators=spread.per_pod,
        nodes=spread.nodes,
        extra_memory=pod_memory.offload_bytes(service),
        shared_memory=pod_memory.shared_memory(service, role_name, spread),
    )


def options(service: InferenceService, role_name: str, spread: Spread) -> dict[str, Any]:
    """Give the file's content; only what a typed field says, or what serving needs."""
    spec, ways, batching = service.spec, service.spec.parallelism_of(role_name), service.spec.batching_of(role_name)
    found: dict[str, Any] = {
        "max_seq_len": spec.model.context_length,
        "max_batch_size": batching.max_sequences,
        "max_num_tokens": batching.max_batch_tokens,
        "enable_chunked_prefill": batching.strategy == "chunked",
        "trust_remote_code": spec.model.trust_remote_code,
        "kv_cache_config": _cache(service, role_name, spread),
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
    }
    if batching.max_wait is not None:
        found["batch_wait_timeout_ms"] = batching.max_wait.seconds * 1000
    group = (ways.tensor or 1) * (ways.data or 1)
    if group != 1:
        found["tensor_parallel_size"] = group  # its attention data parallelism divides the tensor-parallel group
    if ways.data != 1:
        found["enable_attention_dp"] = True
    if ways.pipeline != 1:
        found["pipeline_parallel_size"] = ways.pipeline
    if ways.expert:
        found["moe_expert_parallel_size"] = group
    if spec.speculation.method != "none":
        found["speculative_config"] = _speculation(service)
    return found


def _cache(service: InferenceService, role_name: str, spread: Spread) -> dict[str, Any]:
    spec, cache = service.spec, service.spec.cache
    found: dict[str, Any] = {"free_gpu_memory_fraction": spec.engine.memory_utilization or MEMORY_UTILIZATION}
    kv = spec.quantization_of(role_name).kv_cache
    if kv not in ("auto", None):
        found["dtype"] = "auto" if kv == "none" else kv
    if cache.prefix_reuse is not None:
        found["enable_block_reuse"] = cache.prefix_reuse
    if cache.block_tokens is not None:
        found["tokens_per_block"] = cache.block_tokens
    if cache.kv_tokens is not None:
        found["max_tokens"] = cache.kv_tokens
    if cache.offload.kind == "cpu":
        found["host_cache_size"] = pod_memory.offload_bytes_of_rank(service, spread)
    return found


def _speculation(service: InferenceService) -> dict[str, Any]:
    wish = service.spec.speculation
    match wish.method:
        case "mtp":
            return {"decoding_type": "MTP", "num_nextn_predict_layers": wish.guesses}
        case "ngram":
            return {"decoding_type": "NGram", "max_draft_len": wish.guesses, "max_matching_ngram_size": wish.lookup}
        case "eagle3":
            return {"decoding_type": "Eagle3", "max_draft_len": wish.guesses, "speculative_model": wish.model}
        case _:
            return {"decoding_type": "Draft_Target", "max_draft_len": wish.guesses, "speculative_model": wish.model}
