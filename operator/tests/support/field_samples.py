"""Values for every leaf of the spec, and what must stand beside some of them to have a meaning."""

from typing import Any

from engine_bodies import Spec
from operator_bodies import SHAPE

AGGREGATED: Spec = {"topology": "Aggregated"}
RESOURCES: Spec = {"cpu": "3", "memory": "64Gi"}
FP8_LOADED: Spec = {"weights": "fp8", "source": "Load"}
JOB: Spec = {"weights": "fp8", "source": "Job", "job": {"claim": "models"}}
ROOM: Spec = {"prefill": {"replicas": {"max": 4}}, "decode": {"replicas": {"max": 4}}}
# Shapes of models, so whole that every layer is counted, with more weights than those of the layers.
DENSE: Spec = {
    **SHAPE,
    "parameters": 20_000_000_000,
    "headDimension": 128,
    "intermediateSize": 2048,
    "vocabulary": 128_256,
}
EXPERTS: Spec = {
    "experts": 8,
    "expertsPerToken": 3,
    "sharedExperts": 2,
    "expertIntermediateSize": 1024,
    "denseLayers": 2,
}
LATENT: Spec = {"kvRank": 512, "ropeDimension": 64}
WINDOWS: Spec = {"slidingWindow": 1024, "slidingLayers": 16}
STATES: Spec = {"stateLayers": 8, "stateBytes": 4096}

# Beginnings of fields, and what must stand beside them to have a meaning. The longest one that fits counts.
COMPANY: dict[str, Spec] = {
    "model.shape": {"model": {"shape": DENSE}},
    "model.shape.activeParameters": {"model": {"shape": {**SHAPE, "experts": 8, "expertsPerToken": 3}}},
    "model.shape.intermediateSize": {"model": {"shape": {**DENSE, "experts": 8, "expertsPerToken": 3}}},
    **{
        f"model.shape.{name}": {"model": {"shape": DENSE | part}}
        for part in (EXPERTS, LATENT, WINDOWS, STATES)
        for name in part
    },
    # A written number of weights holds whatever these are, as the rest of it.
    "model.shape.sharedExperts": {"model": {"shape": {**DENSE, **EXPERTS, "parameters": None}}},
    "replicas.initial": {"replicas": {"max": 4}},
    "autoscaling.standby": ROOM,
    "autoscaling.schedule": ROOM,
    "rollout.pauseOnObjectiveLoss": {"objectives": {"timeToFirstToken": "1s"}},
    "model.cache.claim": {"model": {"uri": "hf://org/model", "cache": {"kind": "claim", "claim": "models"}}},
    "model.cache.files": {"model": {"uri": "hf://org/model", "cache": {"kind": "claim", "claim": "models"}}},
    "model.cache.kind": {"model": {"uri": "hf://org/model"}},
    "quantization.job": {"quantization": JOB},
    "batching.maxWait": {"batching": {"strategy": "dynamic", "maxBatchTokens": 8192}},
    "cache.eviction.sinkTokens": {"cache": {"eviction": {"policy": "streaming", "windowTokens": 512}}},
    "cache.eviction.windowTokens": {"cache": {"eviction": {"policy": "streaming"}}},
    "cache.eviction.budgetTokens": {"cache": {"eviction": {"policy": "snapkv"}}},
    "cache.offload.memory": {"cache": {"offload": {"kind": "cpu"}}},
    "cache.offload.address": {"cache": {"offload": {"kind": "lmcache", "memory": "8Gi"}}},
    "speculation.tokens": {"speculation": {"method": "ngram"}},
    "speculation.promptLookup": {"speculation": {"method": "ngram"}},
    "speculation.model": {"speculation": {"method": "draft"}},
    "transfer.rdmaResource": {"transfer": {"network": "rdma"}},
}
# What a value needs that is not the field's own company.
NEEDS: dict[tuple[str, Any], Spec] = {
    ("model.cache.kind", "claim"): {"model": {"cache": {"claim": "models"}}},
    ("quantization.source", "Load"): {"quantization": {"weights": "fp8"}},
    ("quantization.source", "Job"): {"quantization": JOB},
    ("quantization.attention", "fp8"): {"quantization": {"kvCache": "fp8"}},
    ("batching.strategy", "dynamic"): {"batching": {"maxWait": "20ms"}},
    ("cache.eviction.policy", "streaming"): {"cache": {"eviction": {"windowTokens": 512}}},
    ("cache.offload.kind", "cpu"): {"cache": {"offload": {"memory": "8Gi"}}},
    ("cache.offload.kind", "lmcache"): {"cache": {"offload": {"memory": "8Gi"}}},
    ("cache.offload.kind", "mooncake"): {"cache": {"offload": {"memory": "8Gi", "address": "store:5000"}}},
    ("speculation.method", "draft"): {"speculation": {"model": "/models/small.gguf"}},
    ("speculation.method", "eagle3"): {"speculation": {"model": "org/head"}},
    ("transfer.connector", "lmcache"): {
        "cache": {"offload": {"kind": "lmcache", "memory": "8Gi", "address": "store:5000"}}
    },
}
# Values of fields that are free text, maps and lists; numbers and choices follow from the schema.
SAMPLES: dict[str, Any] = {
    "model.uri": "pvc://models/other/model.gguf",
    "model.adapters": [{"name": "legal", "uri": "pvc://adapters/legal"}],
    "model.cache.files": ["*.gguf"],
    "engine.version": "0.33.0",
    "engine.image": "mirror.internal/engine:9.9",
    "engine.args": ["--numerics", "fast"],
    "engine.env": [{"name": "COLOUR", "value": "red"}],
    "accelerator": "h100",
    "cache.offload.address": "store:5000",
    "speculation.model": "org/small",
    "transfer.rdmaResource": "rdma/other",
    "autoscaling.schedule": [{"cron": "0 8 * * 1-5", "duration": "1h", "decode": 2}],
    "template.spec.tolerations": [{"key": "gpu", "operator": "Exists"}],
    "template.spec.affinity": {"nodeAffinity": {}},
    "template.spec.topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "template.spec.imagePullSecrets": [{"name": "pull"}],
    "template.spec.volumes": [{"name": "extra", "emptyDir": {}}],
    "template.spec.containers": [{"name": "sidecar", "image": "side:1"}],
}
BY_NAME: dict[str, Any] = {
    "ratio.min": "1:3",
    "ratio.max": "3:1",
    "requests": RESOURCES,
    "limits": RESOURCES,
    "maxUnavailable": "50%",
    "maxSurge": "50%",
    "maxWait": "30ms",
    "requestTimeout": "90s",
    "timeToFirstToken": "700ms",
    "timePerOutputToken": "70ms",
    "window": "10m",
    "bodyBytes": "8Mi",
    "sharedMemory": "3Gi",
    "memory": "24Gi",
    "labels": {"team": "a"},
    "annotations": {"note": "a"},
    "nodeSelector": {"zone": "a"},
}
# Numbers that are valid beside the rest of the smallest spec.
NUMBERS: dict[str, list[Any]] = {
    "contextLength": [8192],
    "memoryUtilization": [0.8],
    "tensor": [2],
    "pipeline": [2],
    "data": [2],
    "maxSequences": [12],
    "maxBatchTokens": [16_384],
    "kvTokens": [131_072],
    "blockTokens": [32],
    "samples": [64],
    "windowTokens": [1024],
    "sinkTokens": [8],
    "max": [7],
    "replicas": [3],
}
