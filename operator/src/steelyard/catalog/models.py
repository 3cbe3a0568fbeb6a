"""Well-known models, so that a service can be planned by the name of its repository alone."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from steelyard.catalog import configs
from steelyard.catalog.shapes import Shape

# What repositories put behind a model's name without changing its shape; the format, where the name tells it.
_SUFFIXES: Mapping[str, str | None] = {
    "instruct": None, "it": None, "base": None, "chat": None, "thinking": None, "hf": None, "2507": None, "0324": None,
    "0528": None, "2512": None, "bf16": None, "v0.1": None,
    "fp8": "fp8", "fp8-dynamic": "fp8", "awq": "int4-awq", "gptq-int4": "int4-gptq", "gptq-int8": "int8",
    "w4a16": "int4-gptq", "w8a8": "int8", "quantized.w8a8": "int8", "quantized.w4a16": "int4-gptq", "nvfp4": "nvfp4",
    "mxfp4": "mxfp4", "awq-int4": "int4-awq",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the catalogue. `stored` is the format of its own checkpoint; None: 16 bits."""

    name: str
    shape: Shape
    published: float  # weights that its makers state
    stored: str | None


def read(text: str) -> dict[str, Model]:
    """Read a catalogue in TOML; raises `ConfigError` for a model whose facts do not suffice."""
    return {name: _model(name, table) for name, table in tomllib.loads(text).items()}


def _model(name: str, table: dict[str, object]) -> Model:
    published = table.pop("published")
    pattern = table.pop("layer_pattern", None)
    if isinstance(pattern, list):
        layers = table["num_hidden_layers"]
        assert isinstance(layers, int)
        table["layer_types"] = [pattern[i % len(pattern)] for i in range(layers)]
    assert isinstance(published, int | float)
    return Model(name, configs.read(table), published * 1e9, configs.checkpoint_format(table))


MODELS: Mapping[str, Model] = read((resources.files(__package__) / "models.toml").read_text(encoding="utf-8"))


def known(repository: str) -> tuple[Model, str | None] | None:
    """Find the model behind a repository's name, and the format that the name tells.

    `Qwen/Qwen3-32B-FP8` is Qwen3-32B in fp8; `RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic` the same shape under another
    owner. A name with a suffix that is not known is another model: None.
    """
    asked = repository.lower().split("/")[-1]
    asked = re.sub(r"^meta-(?=llama)", "", asked)
    for name, model in sorted(MODELS.items(), key=lambda item: -len(item[0])):
        stem = name.lower().split("/")[-1]
        if asked == stem:
            return model, model.stored
        if asked.startswith(stem + "-"):
            found = _suffixes(asked[len(stem) + 1 :])
            if found is not None:
                return model, found or model.stored
    return None


def _suffixes(rest: str) -> str | None:
    """Read known suffixes one after another: "" where none tells a format; None where one is not known."""
    told = ""
    while rest:
        match = max((s for s in _SUFFIXES if rest == s or rest.startswith(s + "-")), key=len, default=None)
        if match is None:
            return None
        told = _SUFFIXES[match] or told
        rest = rest[len(match) + 1 :]
    return told
