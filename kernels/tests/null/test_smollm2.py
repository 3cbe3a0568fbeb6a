"""The converted model says what transformers says with the same weights."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama, greedy

STORY = "Once upon a time, there was a little girl who"


@pytest.fixture(scope="module")
def folder(checkpoint: gguf.Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "smollm2"
    gguf.write(checkpoint, path)
    return path


def test_transformers_reads_the_written_checkpoint_and_agrees(
    folder: Path, checkpoint: gguf.Checkpoint, model: Llama
) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    text = STORY + " was 12 years old in 1984."
    tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    assert tokens[0].tolist() == checkpoint.tokenizer.encode(text).ids
    with torch.no_grad():
        expected, actual = theirs(tokens).logits[0], model.forward(tokens[0])
    torch.testing.assert_close(actual, expected, atol=2e-3, rtol=1e-3)
    start = checkpoint.tokenizer.encode(STORY).ids
    told = theirs.generate(torch.tensor([start]), max_new_tokens=8, do_sample=False)[0, len(start) :].tolist()
    assert greedy(model, start, 8) == told
    assert checkpoint.tokenizer.decode(told).startswith(" loved to play")


def test_digits_are_tokens_of_their_own(checkpoint: gguf.Checkpoint) -> None:
    assert checkpoint.tokenizer.encode("1984").tokens == ["1", "9", "8", "4"]


def test_an_existing_folder_is_not_overwritten(checkpoint: gguf.Checkpoint, folder: Path) -> None:
    with pytest.raises(FileExistsError, match="name a new folder"):
        gguf.write(checkpoint, folder)
