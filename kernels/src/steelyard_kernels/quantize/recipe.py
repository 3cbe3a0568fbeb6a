"""What to do with a model: a preset, named as in an InferenceService's `quantization.weights`, or a YAML file that changes one.

A file is a mapping of the fields of `Recipe`; `weights` chooses the preset that the others change:
    weights: int4-gptq
    group: 64
    by_activation: true
    samples: 128
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from steelyard_kernels.quantize.errors import QuantizeError

GROUPS: Final = (128, 64, 32)
"""Sizes of groups that engines have kernels for, the first that divides every linear's inputs being the default."""


@dataclass(frozen=True)
class Recipe:
    """Weights' format, how codes are chosen, the file layout, and the calibration."""

    weights: str
    activations: str = "none"
    method: str = "rtn"
    layout: str = "compressed-tensors"
    group: int = 0  # inputs that share a scale; 0: the largest of GROUPS that divides every linear's inputs
    by_activation: bool = True  # GPTQ: the most active columns first, with static groups
    damping: float = 0.01  # GPTQ: this share of H's mean diagonal is added to it
    smooth: float = 0.0  # SmoothQuant's strength; 0: off
    rotation: str = (
        "none"  # folded into the weights first: none, hadamard (QuaRot), or a file of learned ones (SpinQuant)
    )
    samples: int = 128  # windows of calibration text
    tokens: int = 512  # tokens a window

    @property
    def calibrates(self) -> bool:
        """Whether codes or scales depend on the calibration text."""
        return self.method != "rtn" or self.smooth > 0 or self.activations == "nvfp4"


PRESETS: Final = MappingProxyType(
    {
        "fp8": Recipe("fp8", "fp8", method="gptq"),
        "int8": Recipe("int8", "int8", smooth=0.5),
        "int4-gptq": Recipe("int4-gptq", method="gptq", layout="gptq"),
        "int4-awq": Recipe("int4-awq", method="awq", layout="awq"),
        "nvfp4": Recipe("nvfp4", "nvfp4"),
        "mxfp4": Recipe("mxfp4"),
        "nf4": Recipe("nf4", layout="bitsandbytes"),
        "ternary": Recipe("ternary", "int8", layout="ternary"),
    }
)
# For each preset what its fields may be; the first is the default.
LAYOUTS: Final = {
    "int4-gptq": ("gptq", "compressed-tensors"),
    "int4-awq": ("awq",),
    "nf4": ("bitsandbytes",),
    "ternary": ("ternary",),
}
KINDS: Final[dict[str, tuple[type, ...]]] = {"str": (str,), "int": (int,), "bool": (bool,), "float": (float, int)}
ACTIVATIONS: Final = {"fp8": ("fp8", "none"), "int8": ("int8",), "nvfp4": ("nvfp4", "none"), "ternary": ("int8",)}
METHODS: Final = {"fp8": ("gptq", "rtn"), "int4-gptq": ("gptq", "rtn"), "int4-awq": ("awq", "rtn")}


def read(name: str) -> Recipe:
    """A preset's name or a YAML file's path; QuantizeError says what is not understood."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.is_file():
        raise QuantizeError(f"recipe {name!r} is neither a file nor one of the presets {', '.join(PRESETS)}")
    try:
        found = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise QuantizeError(f"{path} is no YAML: {error}") from error
    if not isinstance(found, dict):
        raise QuantizeError(f"{path} must be a mapping of fields, such as `weights: fp8`")
    return of(found, str(path))


def of(found: Mapping[str, Any], where: str) -> Recipe:
    """The recipe of a mapping; `where` is named in errors."""
    base = PRESETS.get(str(found.get("weights")))
    if base is None:
        raise QuantizeError(f"{where}: weights is {found.get('weights')!r}; it must be one of {', '.join(PRESETS)}")
    for field in fields(Recipe):
        value = found.get(field.name, getattr(base, field.name))
        if not isinstance(value, KINDS[str(field.type)]) or (isinstance(value, bool) and field.type != "bool"):
            raise QuantizeError(f"{where}: {field.name} is {value!r}; it must be of type {field.type}")
    unknown = set(found) - {field.name for field in fields(Recipe)}
    if unknown:
        known = ", ".join(field.name for field in fields(Recipe))
        raise QuantizeError(f"{where}: there is no field {sorted(unknown)[0]!r}; there are {known}")
    recipe = replace(base, **found)
    _check(recipe, where)
    return recipe


def as_mapping(recipe: Recipe) -> dict[str, Any]:
    """The fields, for a report or a fingerprint."""
    return asdict(recipe)


def _check(recipe: Recipe, where: str) -> None:
    for field, table, default in (
        ("layout", LAYOUTS, ("compressed-tensors",)),
        ("activations", ACTIVATIONS, ("none",)),
        ("method", METHODS, ("rtn",)),
    ):
        allowed = table.get(recipe.weights, default)
        value = getattr(recipe, field)
        if value not in allowed:
            raise QuantizeError(
                f"{where}: {field} is {value!r}; with weights {recipe.weights} it may be {' or '.join(allowed)}"
            )
    if recipe.rotation != "none" and recipe.weights == "ternary":
        raise QuantizeError(
            f"{where}: rotation is {recipe.rotation!r}; a model trained to be ternary must not be rotated"
        )
    if recipe.smooth and recipe.weights != "int8":
        raise QuantizeError(
            f"{where}: smooth is {recipe.smooth}; SmoothQuant serves int8 weights with int8 activations only"
        )
    ranges = (
        ("group", recipe.group == 0 or recipe.group >= 16, "0 (chosen) or at least 16"),
        ("damping", 0 < recipe.damping <= 1, "above 0 and at most 1"),
        ("smooth", 0 <= recipe.smooth <= 1, "between 0 and 1"),
        ("samples", recipe.samples >= 1, "at least 1"),
        ("tokens", recipe.tokens >= 16, "at least 16"),
    )
    for field, good, wanted in ranges:
        if not good:
            raise QuantizeError(f"{where}: {field} is {getattr(recipe, field)}; it must be {wanted}")
