"""The checkpoint to be quantized: a Hugging Face folder, looked through before any work and then read one layer at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from steelyard_kernels.model.llama import Shape
from steelyard_kernels.quantize.errors import QuantizeError
from steelyard_kernels.rotation import quarot
from steelyard_kernels.rotation.learned import Rotations

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
LINEARS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
)  # fmt: skip
NORMS = ("input_layernorm", "post_attention_layernorm")
FLOATS = {"F32", "F16", "BF16", "F64"}


class Place(NamedTuple):
    """Where a tensor lies: the file, its shape and the bytes it takes there."""

    file: Path
    shape: tuple[int, ...]
    nbytes: int


class Source(NamedTuple):
    """A folder that was found complete: its config, sizes, the place of every tensor, and rotations to fold in while reading."""

    folder: Path
    config: dict[str, Any]
    shape: Shape
    places: Mapping[str, Place]
    rotations: Rotations | None = None

    def layer(self, number: int) -> dict[str, Tensor]:
        """One layer's tensors by their full names, those that rotations change in fp32; QuantizeError when one is not finite."""
        prefix = f"model.layers.{number}"
        found = self._read(name for name in self.places if name.startswith(f"{prefix}."))
        if self.rotations is None:
            return found
        residual, value, _ = self.rotations
        folded = quarot.fold_layer(found, prefix)
        turned = quarot.rotate_layer(folded, prefix, self.shape, residual, value, turned=False)
        return {
            name: one if name.endswith("proj.weight") else one.to(found[name].dtype) for name, one in turned.items()
        }

    def others(self) -> dict[str, Tensor]:
        """Embedding, last norm and head, in the checkpoint's type."""
        found = self._read(name for name in self.places if not name.startswith("model.layers."))
        if self.rotations is None:
            return found
        kind = found["model.embed_tokens.weight"].dtype
        turned = quarot.rotate_ends(quarot.fold_ends(found), self.rotations.residual)
        return {name: tensor.to(kind) for name, tensor in turned.items()}

    def rotated(self, rotations: Rotations) -> Source:
        """The same model on rotated activations; a head that was the embedding becomes its own tensor."""
        return self._replace(rotations=rotations, config={**self.config, "tie_word_embeddings": False})

    def head_nbytes(self) -> int:
        """What the head takes beyond the tensors that were found."""
        copied = self.rotations is not None and "lm_head.weight" not in self.places
        return self.places["model.embed_tokens.weight"].nbytes if copied else 0

    def nbytes(self) -> int:
        """What all tensors take."""
        return sum(place.nbytes for place in self.places.values())

    def _read(self, names: Iterator[str]) -> dict[str, Tensor]:
        found = {}
        for name in names:
            with safe_open(self.places[name].file, "pt") as file:
                found[name] = file.get_tensor(name)
            if not torch.isfinite(found[name]).all():
                raise QuantizeError(f"{name} has values that are not finite; the checkpoint is damaged: fetch it again")
        return found


def open_source(folder: Path) -> Source:
    """Look the folder through; QuantizeError says what is missing or not supported."""
    config = _config(folder)
    places = _places(folder)
    try:
        shape = Shape.of(config)
    except (ValueError, KeyError) as error:
        raise QuantizeError(f"{folder / 'config.json'}: {error}") from error
    expected = _expected(shape, config)
    missing = [name for name in expected if name not in places]
    if missing:
        raise QuantizeError(
            f"{folder} lacks {len(missing)} of the tensors that its config.json asks for, among them {missing[0]}; "
            "fetch the checkpoint again"
        )
    for name, size in expected.items():
        if places[name].shape != size:
            raise QuantizeError(
                f"{name} is {list(places[name].shape)} and config.json says {list(size)}; they must agree"
            )
    surplus = [name for name in places if name.startswith("model.layers.") and name not in expected]
    if surplus:
        raise QuantizeError(f"{surplus[0]} has no place in the architecture {config['architectures'][0]} as read here")
    return Source(folder, config, shape, places)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise QuantizeError(f"{folder} has no config.json; give the folder of a Hugging Face checkpoint")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise QuantizeError(f"{path} is no JSON: {error}") from error
    architecture = (config.get("architectures") or ["unknown"])[0]
    if architecture not in ARCHITECTURES:
        raise QuantizeError(f"{path} names the architecture {architecture}; supported are {', '.join(ARCHITECTURES)}")
    if config.get("quantization_config"):
        raise QuantizeError(f"{path} says that the checkpoint is quantized already; start from one in 16 or 32 bits")
    lacking = [name for name in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
                                 "rms_norm_eps") if name not in config]  # fmt: skip
    if lacking:
        raise QuantizeError(f"{path} lacks {lacking[0]}")
    unsupported = {
        # Qwen 2 names a window that it does not use unless it says so.
        "sliding_window": config.get("sliding_window") if config.get("use_sliding_window", True) else None,
        "hidden_act": config.get("hidden_act") if config.get("hidden_act", "silu") != "silu" else None,
    }
    for name, value in unsupported.items():
        if value:
            raise QuantizeError(
                f"{path} has {name} {value!r}, which is not computed here: its calibration would be wrong"
            )
    return dict(config)


def _places(folder: Path) -> dict[str, Place]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise QuantizeError(f"{folder} has no *.safetensors file; convert other formats first")
    places: dict[str, Place] = {}
    for path in files:
        try:
            with safe_open(path, "pt") as file:
                for name in list(file.keys()):  # the file is no mapping
                    part = file.get_slice(name)
                    kind, size = part.get_dtype(), tuple(part.get_shape())
                    if kind not in FLOATS:
                        raise QuantizeError(f"{name} in {path} is of type {kind}; weights must be floating point")
                    places[name] = Place(path, size, _bytes(kind) * torch.Size(size).numel())
        except (SafetensorError, OSError) as error:
            raise QuantizeError(f"{path} cannot be read: {error}; fetch it again") from error
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        for name, file in json.loads(index.read_text())["weight_map"].items():
            if name not in places:
                raise QuantizeError(
                    f"{index} puts {name} into {file}, which has no such tensor; fetch the checkpoint again"
                )
    return places


def _bytes(kind: str) -> int:
    return int(kind.strip("BF")) // 8


def _expected(shape: Shape, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor that the architecture has."""
    width, queries, keys = shape.width, shape.heads * shape.head, shape.kv_heads * shape.head
    sizes = ((queries, width), (keys, width), (keys, width), (width, queries),
             (shape.hidden, width), (shape.hidden, width), (width, shape.hidden))  # fmt: skip
    found: dict[str, tuple[int, ...]] = {}
    for layer in range(shape.layers):
        found |= {f"model.layers.{layer}.{name}.weight": size for name, size in zip(LINEARS, sizes, strict=True)}
        found |= {f"model.layers.{layer}.{name}.weight": (width,) for name in NORMS}
        outputs = {name: size[0] for name, size in zip(LINEARS, sizes, strict=True)}
        found |= {f"model.layers.{layer}.{name}.bias": (outputs[name],) for name in _biased(config)}
    found["model.norm.weight"] = (width,)
    vocabulary = config.get("vocab_size", 0)
    found["model.embed_tokens.weight"] = (vocabulary, width)
    if not config.get("tie_word_embeddings", False):
        found["lm_head.weight"] = (vocabulary, width)
    return found


def _biased(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The linears of a layer that add a bias."""
    if config["architectures"][0] == "Qwen2ForCausalLM":
        return LINEARS[:3]
    attention = LINEARS[:4] if config.get("attention_bias") else ()
    return attention + (LINEARS[4:] if config.get("mlp_bias") else ())
