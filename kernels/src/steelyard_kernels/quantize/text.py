"""The tokens that a model is calibrated with and judged by."""

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


class Windows(NamedTuple):
    """Calibration and evaluation windows [windows, tokens] int64, and a digest of both."""

    calibration: Tensor
    evaluation: Tensor
    digest: str


def windows(
    tokenizer: Tokenizer, text: Path | None, evaluation: Path | None, samples: int, tokens: int, judged: int
) -> Windows:
    """Cut `samples` windows for calibration and up to `judged` for evaluation, evenly over the texts.

    Without `text` the help texts of Python's standard library serve. Raises QuantizeError when a text is too short.
    """
    source = _read(text) if text else "".join(topics.topics[name] for name in sorted(topics.topics))
    ids = tokenizer.encode(source, add_special_tokens=False).ids
    if evaluation is None:
        cut = int(len(ids) * (1 - HELD_OUT))
        seen, unseen = ids[:cut], ids[cut:]
    else:
        seen, unseen = ids, tokenizer.encode(_read(evaluation), add_special_tokens=False).ids
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
