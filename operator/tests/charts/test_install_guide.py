"""The guide's commands and values are ones that Helm and the charts know."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from rendering import CHARTS, helm, rendered

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "install-with-helm.md").read_text()
BLOCKS = [
    re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in re.findall(r"(?:^ {4}.*\n)+", GUIDE, re.MULTILINE)
]
COMMANDS = [
    line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.startswith("helm upgrade")
]
VALUES = [block for block in BLOCKS if re.match(r"\w+: ?", block)]


def test_the_guide_has_both() -> None:
    assert len(COMMANDS) >= 6
    assert len(VALUES) >= 2


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_render(command: str) -> None:
    """`upgrade` needs a cluster, so the same flags go to `template`; Helm refuses flags and values that it does not know."""
    _, _, *rest = shlex.split(command)
    words = [word for word in rest if word not in ("--install", "--wait", "--create-namespace")]
    live = [word for word in words if word in ("--take-ownership", "--force-conflicts")]
    assert all(flag in helm("upgrade", "--help") for flag in live)
    words = [str(CHARTS.parent / word) if word.startswith("charts/") else word for word in words if word not in live]
    assert "kind:" in helm("template", *words)


@pytest.mark.parametrize("text", VALUES)
def test_values_are_taken(text: str) -> None:
    given = yaml.safe_load(text.replace("sha256:…", "sha256:" + "0" * 64))
    assert rendered("steelyard", **given) != rendered("steelyard")
