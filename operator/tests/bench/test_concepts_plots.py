"""The plots of docs/concepts.md: drawn from the committed data, which the simulator gives again."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from bench import concepts
from steelyard.sim.plots import FILE_PALETTE, FILE_STYLE

DATA = json.loads((concepts.FOLDER / "plots.json").read_text())


def test_every_picture_is_there_and_shown():
    shown = set(re.findall(r"\(concepts/([a-z]+)\.svg\)", (concepts.FOLDER.parent / "concepts.md").read_text()))
    assert shown == set(DATA) == set(concepts.PICTURES) == {path.stem for path in concepts.FOLDER.glob("*.svg")}


@pytest.mark.parametrize("name", list(concepts.PICTURES))
def test_a_committed_picture_is_drawn_from_the_committed_data(name):
    text = (concepts.FOLDER / f"{name}.svg").read_text()
    assert text == concepts.svg(DATA[name])
    assert len(text) < 10_000, "small"
    ElementTree.fromstring(text)


@pytest.mark.parametrize("name", concepts.CHEAP)
def test_the_committed_data_are_what_the_command_gives(name):
    given = json.loads(json.dumps(concepts.told(concepts.PICTURES[name]())))
    assert given == DATA[name], f"run `python -m bench.concepts {name}` in operator/"


def test_text_and_lines_can_be_read_on_white_and_on_black():
    """Contrast as WCAG counts it, of the palette and of the grey of text: at least 3."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    grey = re.search(r"fill:(#[0-9a-f]{6})", FILE_STYLE)
    for colour in (*FILE_PALETTE, grey[1]):
        own = luminance(colour)
        for ground in ("#ffffff", "#0d1117"):
            other = luminance(ground)
            light, dark = max(own, other), min(own, other)
            assert (light + 0.05) / (dark + 0.05) >= 3, f"{colour} on {ground}"
