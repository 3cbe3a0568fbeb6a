"""What a model is calibrated with and judged by when the user gives no text."""

import pydoc_data.topics as topics
from pathlib import Path

import tiny_model
from steelyard_kernels.quantize import text

TOKENS = 64


def test_the_packaged_text_has_several_kinds_and_none_of_what_judges(tmp_path: Path) -> None:
    tokenizer = text.tokenizer_of(tiny_model.write(tmp_path / "tiny"))  # a token a byte
    found = text.windows(tokenizer, None, None, 10**6, TOKENS, 40)
    seen = tokenizer.decode(found.calibration.flatten().tolist())
    help_texts = "".join(topics.topics[name] for name in sorted(topics.topics))
    assert text.SAMPLE.read_text()[:-TOKENS] in seen  # the last window may be cut off
    assert len(seen) > len(text.SAMPLE.read_text()) + 0.6 * len(help_texts)
    judged = [tokenizer.decode(window) for window in found.evaluation.tolist()]
    assert len(judged) == 40
    assert all(one in help_texts for one in judged)
    # Whole paragraphs that judge are not calibrated with; a piece of one may yet be in another one's words.
    judging = help_texts.encode()[int(len(help_texts.encode()) * (1 - text.HELD_OUT)) :].decode(errors="ignore")
    paragraphs = set(judging.split("\n\n")[1:])
    assert not paragraphs & set(seen.split("\n\n")) - {""}


def test_windows_come_from_all_over_the_packaged_text(tmp_path: Path) -> None:
    tokenizer = text.tokenizer_of(tiny_model.write(tmp_path / "tiny"))
    sample = text.SAMPLE.read_text()
    windows = [tokenizer.decode(one) for one in text.windows(tokenizer, None, None, 48, TOKENS, 0).calibration.tolist()]
    of_sample = sum(window in sample for window in windows) / len(windows)
    assert 0.2 < of_sample < 0.5


def test_paragraphs_of_a_text_that_judges_are_not_calibrated_with(tmp_path: Path) -> None:
    tokenizer = text.tokenizer_of(tiny_model.write(tmp_path / "tiny"))
    helping = topics.topics["class"].split("\n\n")[1]
    told = next(one for one in text.SAMPLE.read_text().split("\n\n") if one.startswith("ACADEME"))
    judging = tmp_path / "judging.txt"
    judging.write_text(f"{helping}\n\n{told}\n\n" + "Something of its own. " * 20)
    seen = {}
    for evaluation in (None, judging):
        found = text.windows(tokenizer, None, evaluation, 10**6, TOKENS, 4)
        seen[evaluation] = tokenizer.decode(found.calibration.flatten().tolist()).split("\n\n")
    assert {helping, told} <= set(seen[None])
    assert not {helping, told} & set(seen[judging])
