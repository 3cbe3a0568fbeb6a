"""The pages of the evidence: made from the figures that are kept, whole, and honest about what is missing."""

import json
from pathlib import Path

import pytest
from bench.evidence import kept, markdown, pages, plots_of, summary
from bench.evidence.items import ITEMS

NAMES = {
    "distserve",
    "vllm-runs",
    "silicon",
    "dynamo-static",
    "dynamo-inside",
    "oracle",
    "frontier",
    "robustness",
    "speed",
}
FIGURES = kept.read()


def test_every_item_that_was_asked_for_is_there_and_has_a_block_on_a_page():
    assert set(ITEMS) >= NAMES
    marks = {match["name"] for page in kept.FOLDER.glob("*.md") for match in pages.MARK.finditer(page.read_text())}
    assert marks == {*ITEMS, "summary"}
    assert set(pages.BLOCKS) == set(ITEMS)


@pytest.mark.parametrize("page", sorted(kept.FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_a_committed_page_is_what_the_kept_figures_give(page: Path):
    text = page.read_text()
    assert pages.filled(text, FIGURES) == text, "run `python -m bench.evidence --pages` in operator/"


def test_the_committed_plots_are_what_the_kept_figures_give():
    drawn = plots_of.drawn(FIGURES)
    assert {path.name for path in kept.FOLDER.glob("*.svg")} == set(drawn)
    for name, svg in drawn.items():
        assert (kept.FOLDER / name).read_text() == svg, name


def test_every_kept_item_says_how_it_fares_and_what_it_took():
    for name, figures in FIGURES.items():
        assert figures["name"] == name
        assert isinstance(figures["ok"], bool)
        assert isinstance(figures["worst"], int | float), name
        assert figures["cpu_seconds"] > 0


def test_all_of_it_stays_within_its_minutes():
    assert summary.minutes(FIGURES, pinned=True) <= summary.PINNED_MINUTES
    assert summary.minutes(FIGURES) <= summary.ALL_MINUTES


def test_what_nothing_is_held_to_is_not_called_ok():
    figures = {name: {"ok": True, "worst": 0.5, "limit": 0.9, "cpu_seconds": 60.0} for name in ITEMS}
    for name, _, _, ok, worst, limit, _ in summary.table_rows(figures):
        judged = ITEMS[name.strip("`")].judged
        assert (ok, worst, limit) == ((True, 0.5, 0.9) if judged else (None, 0.5, summary.UNJUDGED))
    assert {name for name, item in ITEMS.items() if not item.judged} == {"startups", "holdout", "ablation", "policies"}


def test_keeping_an_item_leaves_the_others(tmp_path: Path):
    file = tmp_path / "figures.json"
    for figures in ({"name": "b", "ok": True}, {"name": "a", "ok": True}, {"name": "b", "ok": False}):
        kept.keep(figures, file)
    assert kept.read(file) == {"a": {"name": "a", "ok": True}, "b": {"name": "b", "ok": False}}
    assert len(file.read_text().splitlines()) == 4, "one line an item"
    assert json.loads(file.read_text())


def test_a_block_whose_item_was_not_run_says_so_and_what_is_written_by_hand_stays():
    text = "# Page\n\n<!-- figures: oracle -->\nold\n<!-- end -->\n\nThe end.\n"
    assert pages.filled(text, {}) == text.replace("old", "Not run yet: `make evidence ONLY=oracle`.")
    with pytest.raises(KeyError):
        pages.filled(text.replace("oracle", "augury"), {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "yes"),
        (False, "**no**"),
        (0.95284, "0.953"),
        (13.916, "13.92"),
        (18600.4, "18,600"),
        ("4:4", "4:4"),
        (7, "7"),
    ],
)
def test_figures_are_as_short_as_they_can_be_read(value, text):
    assert markdown.cell(value) == text
