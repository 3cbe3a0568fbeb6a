"""A tiny Llama checkpoint on disk with random weights and a tokenizer of bytes: for what a run does to files."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS = 3, 64, 128, 4, 2
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": WIDTH // HEADS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 256,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


def write(folder: Path, kv_heads: int = KV_HEADS, biased: bool = False) -> Path:
    """The checkpoint in a new folder: two safetensors files without an index, as small models have; `biased`: every linear."""
    generator = torch.Generator().manual_seed(7)
    head = WIDTH // HEADS
    sizes = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (kv_heads * head, WIDTH),
        "self_attn.v_proj": (kv_heads * head, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (HIDDEN, WIDTH),
        "mlp.up_proj": (HIDDEN, WIDTH),
        "mlp.down_proj": (WIDTH, HIDDEN),
    }
    tensors = {}
    for layer in range(LAYERS):
        for name, size in sizes.items():
            # Small scores and small steps: a random model with large ones would amplify any rounding without bound.
            share = 0.3 if name.endswith(("q_proj", "k_proj", "o_proj", "down_proj")) else 1.0
            weight = torch.randn(size, generator=generator) * share / size[1] ** 0.5
            tensors[f"model.layers.{layer}.{name}.weight"] = weight
            if biased:
                tensors[f"model.layers.{layer}.{name}.bias"] = 0.3 * torch.randn(size[0], generator=generator)
        for name in ("input_layernorm", "post_attention_layernorm"):
            # Gains that differ, so that some inputs matter more than others.
            gains = torch.exp(0.5 * torch.randn(WIDTH, generator=generator))
            tensors[f"model.layers.{layer}.{name}.weight"] = gains
    tensors["model.norm.weight"] = torch.ones(WIDTH)
    tensors["model.embed_tokens.weight"] = 0.2 * torch.randn(256, WIDTH, generator=generator)
    folder.mkdir(parents=True)
    halves = ({}, {})
    for number, (name, tensor) in enumerate(sorted(tensors.items())):
        halves[number % 2][name] = tensor.bfloat16()
    for number, half in enumerate(halves):
        save_file(half, folder / f"part-{number}.safetensors")
    more = {"num_key_value_heads": kv_heads, "attention_bias": biased, "mlp_bias": biased}
    (folder / "config.json").write_text(json.dumps({**CONFIG, **more}))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={one: number for number, one in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
