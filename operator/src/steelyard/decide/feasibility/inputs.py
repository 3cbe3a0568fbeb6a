"""What feasibility is judged by: one side of a service (a role) with its model, engine, hardware and settings.

These are our own types and not the API's, so that the planner can ask about sides that no manifest describes; `service.py`
makes them from an InferenceService.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from steelyard.api.accelerator import AcceleratorSpec
from steelyard.catalog import kernels
from steelyard.catalog.kernels import Asked, Kernel
from steelyard.catalog.shapes import Shape
from steelyard.catalog.versions import Version
from steelyard.decide.model.layout import Layout
from steelyard.decide.model.speculation import Guessing

COMPUTES_NOTHING = (
    "simulated"  # an engine that keeps the hardware's time: it fits anywhere, and is told where the real one would not
)


@dataclass(frozen=True, slots=True)
class Side:
    """One role. Formats are named as in `catalog/formats.toml`, `auto` where the checkpoint or the engine decides.

    `places` names the field of the manifest that a setting came from, for messages; `stored` is the format of the checkpoint
    where it is known ("none" for 16 bits), else None.
    """

    role: str
    accelerator: str
    hardware: AcceleratorSpec
    engine: str
    version: Version | None
    shape: Shape
    stored: str | None = None
    source: str = "Checkpoint"
    weights: str = "auto"
    activations: str = "auto"
    kv: str = "auto"
    attention: str = "auto"
    layout: Layout = Layout()  # noqa: RUF009 (it is frozen)
    context: int = 2048
    sequences: int = 256
    batch_tokens: int = 8192
    utilization: float = 0.9
    kept: int | None = None  # tokens that eviction leaves of a sequence; None: all
    kv_tokens: int | None = None  # asked for; None: what fits
    adapters: int = 0
    rank: int = 16
    draft: Shape | None = None
    lossless: bool = False
    scaled: bool = False  # the user's own flags have the engine count more positions than the model was made for
    guessing: Guessing | None = None  # None: no guesses, or nobody knows how many are accepted
    places: Mapping[str, str] = field(default_factory=dict)

    def place(self, setting: str) -> str:
        """The field of the manifest that holds a setting."""
        return self.places.get(setting, f"spec.{setting}")

    @property
    def format(self) -> str:
        """The format of the weights in memory; a checkpoint whose format nobody knows counts as 16 bits."""
        return self.weights if self.weights != "auto" else (self.stored or "none")

    @property
    def kv_format(self) -> str:
        """The format of the KV cache in memory; what the engine chooses by itself is 16 bits."""
        return "none" if self.kv == "auto" else self.kv

    @property
    def memory(self) -> float | None:
        """Bytes of one accelerator that the engine may use; None where the hardware does not say."""
        return None if self.hardware.memory is None else float(self.hardware.memory.value) * self.utilization

    @property
    def asked(self) -> Asked:
        """The question to the table of kernels."""
        return Asked(self.engine, self.format, self.activations, self.hardware.vendor, self.hardware.compute_capability,
                     self.version, self.shape.experts is not None)  # fmt: skip

    @property
    def kernel(self) -> Kernel | None:
        """What the table of kernels says; None: nobody knows."""
        return kernels.find(self.asked)

    @property
    def products(self) -> str:
        """The format in which matrices are multiplied: the kernel's, 16 bits where none is known."""
        found = self.kernel
        return found.products if found is not None and found.verdict != "refused" else "bf16"


@dataclass(frozen=True, slots=True)
class Pair:
    """A prefill and a decode side, and what carries KV from one to the other."""

    prefill: Side
    decode: Side
    connector: str
    network: str = "tcp"


@dataclass(frozen=True, slots=True)
class Targets:
    """Objectives in seconds; None: not judged."""

    ttft: float | None = None
    tpot: float | None = None
