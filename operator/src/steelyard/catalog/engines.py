"""What each engine takes: where its weights may come from, its version here, and which flags and variables are owned.

A flag or variable that a typed field owns is refused in `args`, `env` and templates, with that field's name. The embedded
engine has two backends, which are two engines to the user, with the same flags.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from steelyard.catalog.versions import Version, of_image, version

Owners = Mapping[
    str, str | None
]  # name → the field that owns it, or None where the operator alone knows the right value

EMBEDDED_FLAGS: Owners = {
    "--backend": "spec.engine.name",
    "--served-name": "spec.model.servedName",
    "--model": "spec.model.uri",
    "--profile": "spec.accelerator",
    "--context-length": "spec.model.contextLength",
    "--max-sequences": "spec.batching.maxSequences",
    "--max-batch-tokens": "spec.batching.maxBatchTokens",
    "--kv-tokens": "spec.cache.kvTokens",
    "--batching": "spec.batching.strategy",
    "--max-wait": "spec.batching.maxWait",
    "--kv-type": "spec.quantization.kvCache",
    **dict.fromkeys(("--sink", "--recent"), "spec.cache.eviction"),
    "--lora": "spec.model.adapters",
    **dict.fromkeys(("--speculation", "--guesses", "--lookup", "--draft-model"), "spec.speculation"),
    "--on-kv-failure": "spec.transfer.onFailure",
    "--threads": "spec.<role>.resources.limits.cpu",
    "--drain-timeout": "spec.routing.requestTimeout",
    "--port": None,
    "--kv-port": None,
    "--kv-lease": None,
    "--advertise-host": None,
}

_PARALLELISM = "spec.parallelism"
VLLM_FLAGS: Owners = {
    "--model": "spec.model.uri",
    "--revision": "spec.model.uri",
    "--hf-token": "spec.model.credentials",
    "--load-format": "spec.model.uri",
    "--served-model-name": "spec.model.servedName",
    "--max-model-len": "spec.model.contextLength",
    "--trust-remote-code": "spec.model.trustRemoteCode",
    "--no-trust-remote-code": "spec.model.trustRemoteCode",
    **dict.fromkeys(
        ("--enable-lora", "--lora-modules", "--max-loras", "--max-lora-rank", "--max-cpu-loras"), "spec.model.adapters"
    ),
    "--gpu-memory-utilization": "spec.engine.memoryUtilization",
    "--max-num-seqs": "spec.batching.maxSequences",
    "--max-num-batched-tokens": "spec.batching.maxBatchTokens",
    "--enable-chunked-prefill": "spec.batching.strategy",
    "--no-enable-chunked-prefill": "spec.batching.strategy",
    "--block-size": "spec.cache.blockTokens",
    "--num-gpu-blocks-override": "spec.cache.kvTokens",
    "--enable-prefix-caching": "spec.cache.prefixReuse",
    "--no-enable-prefix-caching": "spec.cache.prefixReuse",
    "--kv-events-config": "spec.cache.events",
    "--kv-offloading-size": "spec.cache.offload",
    "--kv-offloading-backend": "spec.cache.offload",
    "--kv-transfer-config": "spec.transfer.connector",
    "--kv-cache-dtype": "spec.quantization.kvCache",
    "--quantization": "spec.quantization.weights",
    "-q": "spec.quantization.weights",
    "--attention-config": "spec.quantization.attention",
    "-ac": "spec.quantization.attention",
    **dict.fromkeys(
        ("--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens"), "spec.speculation"
    ),
    **dict.fromkeys(("--tensor-parallel-size", "-tp"), f"{_PARALLELISM}.tensor"),
    **dict.fromkeys(("--pipeline-parallel-size", "-pp"), f"{_PARALLELISM}.pipeline"),
    **dict.fromkeys(("--data-parallel-size", "-dp", "--data-parallel-size-local", "-dpl"), f"{_PARALLELISM}.data"),
    **dict.fromkeys(("--enable-expert-parallel", "--no-enable-expert-parallel", "-ep"), f"{_PARALLELISM}.expert"),
    # How 0.33 and later switch off:
    "--disable-chunked-prefill": "spec.batching.strategy",
    "--disable-prefix-caching": "spec.cache.prefixReuse",
    "--disable-expert-parallel": f"{_PARALLELISM}.expert",
    "--disable-lora": "spec.model.adapters",
    "--shutdown-timeout": "spec.routing.requestTimeout",
    "--config": None,  # a file could set what typed fields own
    "--port": None,
    "--headless": None,
    "--nnodes": None,
    "-n": None,
    "--node-rank": None,
    "-r": None,
    "--master-addr": None,
    "--master-port": None,
    "--api-key": "spec.routing.apiKeys",
}

SGLANG_FLAGS: Owners = {
    **dict.fromkeys(("--model-path", "--model", "--revision", "--load-format"), "spec.model.uri"),
    "--served-model-name": "spec.model.servedName",
    "--context-length": "spec.model.contextLength",
    "--trust-remote-code": "spec.model.trustRemoteCode",
    **dict.fromkeys(
        ("--enable-lora", "--lora-paths", "--max-loras-per-batch", "--max-lora-rank"), "spec.model.adapters"
    ),
    "--mem-fraction-static": "spec.engine.memoryUtilization",
    "--max-running-requests": "spec.batching.maxSequences",
    "--max-prefill-tokens": "spec.batching.maxBatchTokens",
    "--chunked-prefill-size": "spec.batching.strategy",
    "--page-size": "spec.cache.blockTokens",
    "--max-total-tokens": "spec.cache.kvTokens",
    "--disable-radix-cache": "spec.cache.prefixReuse",
    "--kv-events-config": "spec.cache.events",
    **dict.fromkeys(
        ("--enable-hierarchical-cache", "--enable-hicache", "--hicache-size", "--hicache-ratio"), "spec.cache.offload"
    ),
    **dict.fromkeys(("--hicache-storage-backend", "--hicache-storage-backend-extra-config"), "spec.cache.offload"),
    **dict.fromkeys(("--enable-lmcache", "--lmcache-config-file"), "spec.cache.offload"),
    "--kv-cache-dtype": "spec.quantization.kvCache",
    "--quantization": "spec.quantization.weights",
    **dict.fromkeys(
        (
            "--speculative-algorithm",
            "--speculative-num-draft-tokens",
            "--speculative-num-steps",
            "--speculative-eagle-topk",
            "--speculative-draft-model-path",
            "--speculative-draft-model",
            "--speculative-ngram-max-trie-depth",
        ),
        "spec.speculation",
    ),
    **dict.fromkeys(("--tp-size", "--tensor-parallel-size", "--tp"), f"{_PARALLELISM}.tensor"),
    **dict.fromkeys(("--pp-size", "--pipeline-parallel-size"), f"{_PARALLELISM}.pipeline"),
    **dict.fromkeys(("--dp-size", "--data-parallel-size", "--enable-dp-attention"), f"{_PARALLELISM}.data"),
    **dict.fromkeys(("--ep-size", "--expert-parallel-size"), f"{_PARALLELISM}.expert"),
    "--disaggregation-mode": "spec.topology",
    "--disaggregation-transfer-backend": "spec.transfer.connector",
    "--config": None,
    "--host": None,
    "--port": None,
    "--enable-metrics": None,
    "--nnodes": None,
    "--node-rank": None,
    "--dist-init-addr": None,
    "--api-key": "spec.routing.apiKeys",
}

TENSORRT_LLM_FLAGS: Owners = {
    "--revision": "spec.model.uri",
    "--hf-revision": "spec.model.uri",
    "--served-model-name": "spec.model.servedName",
    "--max-seq-len": "spec.model.contextLength",
    "--trust-remote-code": "spec.model.trustRemoteCode",
    "--free-gpu-memory-fraction": "spec.engine.memoryUtilization",
    "--kv-cache-free-gpu-memory-fraction": "spec.engine.memoryUtilization",
    "--kv-cache-dtype": "spec.quantization.kvCache",
    "--max-batch-size": "spec.batching.maxSequences",
    "--max-num-tokens": "spec.batching.maxBatchTokens",
    "--enable-chunked-prefill": "spec.batching.strategy",
    **dict.fromkeys(("--tensor-parallel-size", "--tp-size"), f"{_PARALLELISM}.tensor"),
    **dict.fromkeys(("--pipeline-parallel-size", "--pp-size"), f"{_PARALLELISM}.pipeline"),
    "--enable-attention-dp": f"{_PARALLELISM}.data",
    **dict.fromkeys(("--moe-expert-parallel-size", "--ep-size"), f"{_PARALLELISM}.expert"),
    "--server-role": "spec.topology",
    "--config": None,
    "--extra-llm-api-options": None,
    "--host": None,
    "--port": None,
}

# Variables that the operator sets on every engine: another value would send KV requests to the wrong pod (C22).
OWNED_VARIABLES: Owners = {"POD_IP": None, "POD_NAME": None}

# And on engines on accelerators. Device numbers are the device plugin's to give out (C30).
ACCELERATED_VARIABLES: Owners = {
    **OWNED_VARIABLES,
    "CUDA_VISIBLE_DEVICES": "spec.parallelism",
    "NVIDIA_VISIBLE_DEVICES": "spec.parallelism",
    "HIP_VISIBLE_DEVICES": "spec.parallelism",
    "ROCR_VISIBLE_DEVICES": "spec.parallelism",
    **dict.fromkeys(("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN"), "spec.model.credentials"),
    **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"), "spec.model.credentials"),
    "VLLM_USE_V2_MODEL_RUNNER": "spec.engine.modelRunner",
    "VLLM_API_KEY": "spec.routing.apiKeys",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": None,
    "VLLM_NIXL_SIDE_CHANNEL_PORT": None,
    "UCX_TLS": "spec.transfer.network",
    "MOONCAKE_CONFIG_PATH": "spec.cache.offload",
    **dict.fromkeys(("LMCACHE_LOCAL_CPU", "LMCACHE_MAX_LOCAL_CPU_SIZE", "LMCACHE_REMOTE_URL"), "spec.cache.offload"),
    **dict.fromkeys(("LMCACHE_CONFIG_FILE", "PEGAFLOW_HOST", "PEGAFLOW_PORT"), "spec.cache.offload"),
}


@dataclass(frozen=True)
class Engine:
    """Abilities of one engine that its builder does not know by itself."""

    model_schemes: tuple[str, ...]  # schemes of spec.model.uri it can be given weights from; empty: it reads none
    needs_hardware: bool  # it computes on the accelerator itself; False: it only keeps its time
    flags: Owners
    variables: Owners
    backend: str = ""  # value of the embedded engine's --backend
    version: str = ""  # that its builder writes flags for, where the service names none; ours have the operator's
    image: str = ""  # its project's own, of that version; ours are the installation's; empty else: users name one
    every_flag_known: bool = False  # a flag without an owner that is not the user's does not exist
    users_flags: tuple[str, ...] = ()  # of those that are known: what no typed field owns, for spec.engine.args
    processors_only: bool = False  # it computes on plain processors and on nothing else
    measured_from: str = (
        ""  # first version whose load observe/ can read, so that the autoscaler decides; empty: every one
    )


ENGINES: Mapping[str, Engine] = {
    "llama-cpp": Engine(
        model_schemes=("oci", "pvc"),
        needs_hardware=True,
        flags=EMBEDDED_FLAGS,
        variables=OWNED_VARIABLES,
        backend="llama",
        every_flag_known=True,
        users_flags=("--numerics",),
        processors_only=True,
    ),
    "simulated": Engine(
        model_schemes=(),
        needs_hardware=False,
        flags=EMBEDDED_FLAGS,
        variables=OWNED_VARIABLES,
        backend="simulated",
        every_flag_known=True,
    ),
    "vllm": Engine(
        model_schemes=("hf", "oci", "pvc", "s3"),
        needs_hardware=True,
        flags=VLLM_FLAGS,
        variables=ACCELERATED_VARIABLES,
        version="0.32.0",
        image="vllm/vllm-openai:v0.32.0",
    ),
    "sglang": Engine(
        model_schemes=("hf", "oci", "pvc", "s3"),
        needs_hardware=True,
        flags=SGLANG_FLAGS,
        variables=ACCELERATED_VARIABLES,
        version="0.5.23",
        image="lmsysorg/sglang:v0.5.23",
    ),
    "tensorrt-llm": Engine(
        model_schemes=("hf", "oci", "pvc"),
        needs_hardware=True,
        flags=TENSORRT_LLM_FLAGS,
        variables=ACCELERATED_VARIABLES,
        version="1.2.1",
        measured_from="1.3",
    ),
}


def version_told(engine: str, image: str | None) -> Version | None:
    """Read the engine's version from the tag of its image; None where the tag tells none.

    A tag may count something else: nvcr.io/nvidia/vllm:25.09-py3 is a month, and a mirror may count its own builds. So it is
    believed only where its first number is that of the version that we know.
    """
    told, known = of_image(image), version(ENGINES[engine].version)
    return told if told is not None and known is not None and told[0] == known[0] else None


def flag_owner(engine: str, argument: str) -> tuple[str, str | None] | None:
    """Find the owned flag that an argument sets, and the owning field; None for a flag that is the user's to set.

    Every spelling counts: `--flag value`, `--flag=value`, `--flag.part=value`, underscores, short forms, and the
    abbreviations that an argument parser completes (`--context` for `--context-length`).
    """
    owners = ENGINES[engine].flags
    if not argument.startswith("--"):
        short = argument.split("=", 1)[0]
        return (short, owners[short]) if short in owners else None
    flag = argument.split("=", 1)[0].split(".", 1)[0].replace("_", "-").lower()
    if len(flag) <= len("--"):
        return None
    for known, field in owners.items():
        if known.startswith(flag):
            return known, field
    return None
