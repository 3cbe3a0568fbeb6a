"""The tokens that a model is calibrated with and judged by.

Unless the user gives a text, calibration takes the packaged one: the help texts of Python's standard library and `sample.txt`,
prose and verse of other kinds (`sample.md` says whose). A calibrated method fits the kind of text that it sees.
"""

from __future__ import annotations

import hashlib
import pydoc_data.topics as topics
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from steelyard_kernels.quantize.errors import QuantizeError

HELD_OUT = 0.2  # the share of a text, at its end, that is not calibrated with when no other text is given to judge by
SAMPLE = Path(__file__).with_name("sample.txt")


class Windows(NamedTuple):
    """Calibration and evaluation windows [windows, tokens] int64, and a digest of both."""

    calibration: Tensor
    evaluation: Tensor
    digest: str


def windows(
    tokenizer: Tokenizer, text: Path | None, evaluation: Path | None, samples: int, tokens: int, judged: int
) -> Windows:
    """Cut `samples` windows for calibration and up to `judged` for evaluation, evenly over the texts.

    Without `text` the packaged sample serves, but for the paragraphs that are in the text that judges. Without `evaluation` the end
    of `text` judges, or of the help texts. Raises QuantizeError when a text is too short.
    """

    def ids_of(source: str) -> list[int]:
        return tokenizer.encode(source, add_special_tokens=False).ids

    source = _read(text) if text else "".join(topics.topics[name] for name in sorted(topics.topics))
    whole = tokenizer.encode(source, add_special_tokens=False)
    cut = len(whole.ids) if evaluation else int(len(whole.ids) * (1 - HELD_OUT))
    seen, unseen = whole.ids[:cut], whole.ids[cut:]
    judging = _read(evaluation) if evaluation else None
    if judging is not None:
        unseen = ids_of(judging)
    if text is None and samples:
        at = whole.offsets[cut][0] if judging is None else len(source)
        beside = source[at:] if judging is None else judging
        seen = ids_of(_beside(source[:at], beside) + _beside(_read(SAMPLE), beside))
    where = str(text or "the packaged sample")
    parts = (_spread(seen, samples, tokens, where), _spread(unseen, judged, tokens, str(evaluation or where)))
    digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
    return Windows(*parts, digest)


def _spread(ids: list[int], count: int, tokens: int, where: str) -> Tensor:
    have = len(ids) // tokens
    if count and not have:
        raise QuantizeError(
            f"{where} gives {len(ids)} tokens, less than a window of {tokens}; give a longer text or fewer --tokens"
        )
    chosen = range(have) if have <= count else [number * have // count for number in range(count)]
    return torch.tensor([ids[number * tokens : (number + 1) * tokens] for number in chosen], dtype=torch.int64).view(
        -1, tokens
    )


def _beside(text: str, judged: str) -> str:
    """The text without the paragraphs that `judged` has too: help texts repeat each other's."""
    there = set(judged.split("\n\n"))
    return "".join(f"{paragraph}\n\n" for paragraph in text.split("\n\n") if paragraph not in there)


def tokenizer_of(folder: Path) -> Tokenizer:
    """The folder's tokenizer; QuantizeError when it has none."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise QuantizeError(
            f"{folder} has no tokenizer.json, which calibration and perplexity need; add it (or --no-perplexity)"
        )
    return Tokenizer.from_file(str(path))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise QuantizeError(f"{path} cannot be read as text: {error}") from error
