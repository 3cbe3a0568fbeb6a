"""What each engine can do and which of its flags belong to a typed field: a table to look things up in.

The embedded engine has two backends, which are two engines to the user. Both have the same flags.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# Flag of `steelyard-engine` → the field that owns it, or None where the operator alone knows the right value.
FLAG_OWNERS: Mapping[str, str | None] = {
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
    "--on-kv-failure": "spec.transfer.onFailure",
    "--threads": "spec.<role>.resources.limits.cpu",
    "--drain-timeout": "spec.routing.requestTimeout",
    "--port": None,
    "--kv-port": None,
    "--kv-lease": None,
    "--advertise-host": None,
}

# Variables that the operator sets on every engine: another value would send KV requests to the wrong pod (C22).
OWNED_VARIABLES = frozenset({"POD_IP", "POD_NAME"})


@dataclass(frozen=True)
class Engine:
    """Abilities of one engine."""

    backend: str  # value of --backend
    model_schemes: tuple[str, ...]  # schemes of spec.model.uri it can be given weights from; empty: it reads none
    needs_hardware: bool  # it computes on the accelerator itself; False: it only keeps its time


ENGINES: Mapping[str, Engine] = {
    "llama-cpp": Engine(backend="llama", model_schemes=("oci", "pvc"), needs_hardware=True),
    "simulated": Engine(backend="simulated", model_schemes=(), needs_hardware=False),
}


def flag_owner(argument: str) -> tuple[str, str | None] | None:
    """Find the owned flag that an argument sets, and the owning field; None for a flag that is the user's to set.

    Every spelling counts: `--flag value`, `--flag=value`, underscores, and the abbreviations an argument parser
    completes (`--context` for `--context-length`).
    """
    if not argument.startswith("--"):
        return None
    flag = argument.split("=", 1)[0].replace("_", "-").lower()
    if len(flag) <= len("--"):
        return None
    for known, field in FLAG_OWNERS.items():
        if known.startswith(flag):
            return known, field
    return None
