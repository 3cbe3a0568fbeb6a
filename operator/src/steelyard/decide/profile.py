"""What an engine takes for each step: the roofline prior (`model/roofline.py`), and its form as a simulated engine's file.

One prefill of n new tokens takes a + b·n + c·n² seconds; a decode step with batch n at KV use u (0..1) takes
g0 + g1·u + g2·u² + g3·n. A roofline does not bend, so g2 = 0.
"""

from dataclasses import dataclass
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.model import ModelShape
from steelyard.api.service import InferenceService
from steelyard.catalog.engines import ENGINES
from steelyard.catalog.formats import KV, WEIGHTS
from steelyard.decide.feasibility.reach import replica
from steelyard.decide.feasibility.service import known_shape, side_of
from steelyard.decide.model import roofline as prior

LOAD_BYTES_PER_SECOND = 2e9  # from local disk into the accelerator
START_SECONDS = 2.0  # process and warm-up
SIXTEEN_BITS = 16.0
# Share of guesses that are right, for rehearsals of speculation: usual figures of chats, not measured here.
ACCEPTANCE = {"ngram": 0.3, "draft": 0.6, "eagle3": 0.7, "mtp": 0.7}


@dataclass(frozen=True)
class Profile:
    """A simulated engine's times in seconds and sizes in tokens and bytes; the file format of docs/design/interfaces."""

    startup_seconds: float
    kv_tokens: int
    prefill: tuple[float, float, float]  # a, b, c
    decode: tuple[float, float, float, float]  # g0, g1, g2, g3
    transfer_bytes_per_second: float
    bytes_per_token: int
    acceptance: float | None = None  # share of guesses that are right; None: nobody guesses

    def manifest(self) -> dict[str, Any]:
        """Give the file's content; figures are rounded to six digits, so that the text is stable."""
        a, b, c = map(_rounded, self.prefill)
        g0, g1, g2, g3 = map(_rounded, self.decode)
        guesses = {} if self.acceptance is None else {"acceptance": self.acceptance}
        return {
            "startupSeconds": _rounded(self.startup_seconds),
            "kvTokens": self.kv_tokens,
            "prefill": {"a": a, "b": b, "c": c},
            "decode": {"g0": g0, "g1": g1, "g2": g2, "g3": g3},
            "transferBytesPerSecond": _rounded(self.transfer_bytes_per_second),
            "bytesPerToken": self.bytes_per_token,
            **guesses,
        }


def figures(service: InferenceService, role_name: str, accelerator: Accelerator) -> prior.Roofline:
    """Take the prior of one replica: the model's shape in its number formats, on all of the replica's accelerators.

    The shape is the written one; where that is not enough, an engine that is not ours is taken as feasibility takes it,
    by the catalogue's shape and the checkpoint's format. Raises ValueError naming what is missing of the shape or the
    accelerator; `accept` asks for both where they are needed.
    """
    try:
        return _written(service, role_name, accelerator)
    except ValueError:
        known = _catalogued(service, role_name, accelerator)
        if known is None:
            raise
        return known


def _written(service: InferenceService, role_name: str, accelerator: Accelerator) -> prior.Roofline:
    formats = service.spec.quantization_of(role_name)
    weights, kv = formats.weights or "auto", formats.kv_cache or "auto"
    return prior.roofline(
        accelerator.spec,
        service.spec.model.shape or ModelShape(),
        accelerators=service.spec.parallelism_of(role_name).accelerators,
        weight_bytes=(WEIGHTS[weights].bits if weights in WEIGHTS else SIXTEEN_BITS) / 8,
        kv_value_bytes=(KV[kv].bits if kv in KV else SIXTEEN_BITS) / 8,
    )


def _catalogued(service: InferenceService, role_name: str, accelerator: Accelerator) -> prior.Roofline | None:
    """None where the catalogue does not know the model, nor anybody the hardware's figures, and for our own engines: the
    simulated one keeps time by what is written, the embedded one's cores are not what an Accelerator describes."""
    found = known_shape(service.spec.model)
    if found is None or ENGINES[service.spec.engine.name].backend:
        return None
    return replica(side_of(service, role_name, accelerator, *found))


def roofline(service: InferenceService, role_name: str, accelerator: Accelerator) -> Profile:
    """Write the prior as a profile."""
    known = figures(service, role_name, accelerator)
    kv_tokens = service.spec.kv_tokens_of(role_name)
    model = known.polynomial(kv_tokens)
    return Profile(
        startup_seconds=START_SECONDS + known.weights / LOAD_BYTES_PER_SECOND,
        kv_tokens=kv_tokens,
        prefill=model.prefill,
        decode=model.decode,
        transfer_bytes_per_second=model.transfer_bytes_per_second,
        bytes_per_token=round(model.kv_bytes_per_token),
        acceptance=ACCEPTANCE.get(service.spec.speculation.method),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
