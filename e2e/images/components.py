"""Which images there are and what each is made of. A tag is the hash of all that goes in, so equal tags mean equal content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e import lock
from e2e.cache import REPOSITORY, content_key
from e2e.kernels import site as quantize_site
from e2e.vllm import site

WEIGHTS_VERSION = "0.1.2"
LLAMA_ARGUMENTS = REPOSITORY / "images" / "engine" / "llama-cmake-args.txt"


@dataclass(frozen=True)
class Component:
    """One image: `steelyard/<name>`.

    `package` and `extra` name the Python distribution of the workspace that it carries (None: weights, or another's packages),
    `sources` the files of our own that its content depends on. One `on_demand` is built only when it is named.
    """

    name: str
    package: str | None = None
    extra: str | None = None
    sources: tuple[Path, ...] = ()
    on_demand: bool = False

    @property
    def folder(self) -> Path:
        """Where the Containerfile lies."""
        return REPOSITORY / "images" / self.name


MODEL, VLLM, QUANTIZE = "model-smollm2", "vllm", "quantize"

_STEELYARD = (REPOSITORY / "operator" / "src", REPOSITORY / "operator" / "pyproject.toml")
_ENGINE = (
    REPOSITORY / "images" / "engine" / "src",
    REPOSITORY / "images" / "engine" / "pyproject.toml",
    LLAMA_ARGUMENTS,
)

COMPONENTS = {
    c.name: c
    for c in (
        Component("operator", "steelyard", "operator", _STEELYARD),
        Component("gateway", "steelyard", "gateway", _STEELYARD),
        Component("engine", "steelyard-engine", "llama", _ENGINE),
        Component(MODEL),
        Component(VLLM, sources=(*site.SOURCES, REPOSITORY / "images" / VLLM / "vllm"), on_demand=True),
        Component(QUANTIZE, sources=quantize_site.SOURCES, on_demand=True),
    )
}
USUAL = tuple(c.name for c in COMPONENTS.values() if not c.on_demand)


def requirements(component: Component) -> str:
    """The component's pinned dependencies with hashes, from `uv.lock`, or another project's (empty for data)."""
    if component.name == VLLM:
        return site.requirements()
    if component.name == QUANTIZE:
        return quantize_site.requirements()
    if component.package is None:
        return ""
    extra = ("--extra", component.extra) if component.extra else ()
    return lock.export("--no-dev", "--no-emit-workspace", "--package", component.package, *extra)


def tag(component: Component, base_key: str) -> str:
    """The reference `steelyard/<name>:<content hash>`.

    Weights never change within a version, so the model's tag is that version: manifests can name it.
    """
    if component.name == MODEL:
        return f"steelyard/{component.name}:{WEIGHTS_VERSION}"
    parts: list[str | Path] = [
        base_key,
        requirements(component),
        component.folder / "Containerfile",
        *component.sources,
    ]
    return f"steelyard/{component.name}:{content_key(parts)}"
