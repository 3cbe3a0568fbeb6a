"""Writes a LoRA adapter as the library `peft` does; its numbers are drawn, not learned: it need only differ from its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

RANK = 8
# Standard deviation of both factors. What is added has one of 2 · STRENGTH² · √RANK, which is then about as large as the model's
# own numbers: with a fifth of this strength most greedy texts stay as they were.
STRENGTH = 0.1


def write(config: Path, folder: Path) -> None:
    """Adapt the projections of queries and of values in every layer of the Llama of a config.json, into the new `folder`."""
    shape = json.loads(config.read_text())
    hidden, heads, kv_heads = (shape[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    outputs = {"q_proj": hidden, "v_proj": hidden // heads * kv_heads}
    source = np.random.default_rng(1)
    tensors = {
        f"base_model.model.model.layers.{layer}.self_attn.{name}.lora_{factor}.weight": source.normal(0, STRENGTH, size)
        for layer in range(shape["num_hidden_layers"])
        for name, rows in outputs.items()
        for factor, size in (("A", (RANK, hidden)), ("B", (rows, RANK)))
    }
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none"}
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({**settings, "target_modules": sorted(outputs)}))
    (folder / "adapter_model.safetensors").write_bytes(_safetensors(tensors))


def _safetensors(tensors: dict[str, Any]) -> bytes:
    """The tensors as float32 in the file format: length of the header, header, numbers."""
    header: dict[str, Any] = {}
    numbers = bytearray()
    for name, tensor in tensors.items():
        data = tensor.astype("<f4").tobytes()
        places = [len(numbers), len(numbers) + len(data)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": places}
        numbers += data
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(numbers)
