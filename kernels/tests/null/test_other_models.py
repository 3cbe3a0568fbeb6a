"""Models near Llama that are read: ours computes what transformers does, from the same files."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config

from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quantize.source import open_source

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 200,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SIZES, rope_parameters=LLAMA3, tie_word_embeddings=True),
        LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}),
        LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
        MistralConfig(**SIZES, sliding_window=None),
        Qwen2Config(**SIZES, tie_word_embeddings=True),
    ],
    ids=["llama3 positions", "linear positions", "biases", "mistral", "qwen2"],
)
def test_what_is_read_computes_what_transformers_does(config: PretrainedConfig, tmp_path: Path) -> None:
    theirs = AutoModelForCausalLM.from_config(config).float().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    theirs.save_pretrained(tmp_path / "model")
    source = open_source(tmp_path / "model")
    tensors = source.others()
    for number in range(source.shape.layers):
        tensors |= source.layer(number)
    tokens = torch.randint(0, 200, (100,))
    with torch.no_grad():
        expected, found = theirs(tokens[None]).logits[0], Llama(source.config, tensors).forward(tokens)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
