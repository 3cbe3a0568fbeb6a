"""The gateway's settings file, `gateway.json` (docs/design/interfaces.md): a ConfigMap that running gateways re-read."""

import json
from typing import Any

from steelyard.api import names
from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import COMPONENT, DECODE, PREFILL
from steelyard.api.service import InferenceService
from steelyard.build.meta import GATEWAY, Body, child
from steelyard.decide.profile import figures

FILE = "gateway.json"
KEYS_FOLDER = "/etc/steelyard-keys"
KEYS_FILE = f"{KEYS_FOLDER}/keys"
STALL_TIMEOUT_SECONDS = 60
STALLS_A_REQUEST = 3  # a request whose engine stalls must have time left for another one
HANDOFF_SECONDS = 0.05

# Seconds of one prefill of n tokens on one processor core, until the gateway has measured its own: a + b·n + c·n².
PROCESSOR_PRIOR = {"a": 0.02, "b": 0.002, "c": 0.0}
ACCELERATOR_PRIOR = {"a": 0.02, "b": 0.0001, "c": 0.0}  # 10,000 tokens a second, where nothing says more


def config_map(service: InferenceService, accelerators: dict[str, Accelerator | None]) -> Body:
    """Build the ConfigMap."""
    body = child(service, "v1", "ConfigMap", names.gateway_settings(service.name), {COMPONENT: GATEWAY})
    body["data"] = {FILE: json.dumps(settings(service, accelerators), indent=2) + "\n"}
    return body


def settings(service: InferenceService, accelerators: dict[str, Accelerator | None]) -> dict[str, Any]:
    """Compute the file's content."""
    spec = service.spec
    reading = PREFILL if PREFILL in spec.roles else next(iter(spec.roles))
    writing = DECODE if DECODE in spec.roles else reading
    ttft, tpot = spec.objectives.time_to_first_token, spec.objectives.time_per_output_token
    return {
        "service": service.name,
        "namespace": service.namespace,
        "servedName": service.served_name,
        "adapters": [adapter.name for adapter in spec.model.adapters],
        "topology": spec.topology,
        "objectives": {
            "ttftSeconds": ttft.seconds if ttft else None,
            "tpotSeconds": tpot.seconds if tpot else None,
        },
        "order": spec.routing.order,
        "affinity": spec.routing.affinity,
        "limits": {
            "concurrent": spec.routing.limits.concurrent,
            "bodyBytes": spec.routing.limits.body_bytes.whole,
            "shedWhenLate": spec.routing.limits.shed_when_late,
        },
        "requestTimeoutSeconds": spec.routing.request_timeout.seconds,
        "stallTimeoutSeconds": min(STALL_TIMEOUT_SECONDS, spec.routing.request_timeout.seconds / STALLS_A_REQUEST),
        "gateways": spec.routing.replicas,
        "prefillPrior": _prior(service, reading, accelerators.get(spec.accelerator_of(reading))),
        "handoffSeconds": HANDOFF_SECONDS,
        "decodeSlots": spec.batching_of(writing).max_sequences,
        "contextLength": spec.model.context_length,
        "apiKeysFile": KEYS_FILE if spec.routing.api_keys else None,
    }


def _prior(service: InferenceService, role: str, accelerator: Accelerator | None) -> dict[str, float]:
    """Take what the hardware and the model's shape say, where both are known and an accelerator computes."""
    if accelerator is None or (accelerator.spec.resource is None and service.spec.engine.name != "simulated"):
        return PROCESSOR_PRIOR
    try:
        known = figures(service, role, accelerator)
    except ValueError:
        return ACCELERATOR_PRIOR
    a, b, c = known.polynomial(service.spec.kv_tokens_of(role)).prefill
    return {"a": float(f"{a:.6g}"), "b": float(f"{b:.6g}"), "c": float(f"{c:.6g}")}
