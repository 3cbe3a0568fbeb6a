"""The table of reported failures: every case has a row, its source, and tests that exist."""

from __future__ import annotations

import ast
import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from e2e.cache import REPOSITORY

DESIGN = REPOSITORY / "docs" / "design"
TESTS = ("operator/tests", "images/engine/tests", "e2e/tests", "e2e/scenarios")
ROW = re.compile(r"\| ([A-G]\d\d) \| (.+?) \| (.+?) \| (.+?) \|")


def listed() -> dict[str, tuple[str, str]]:
    """Kind and source of every case, by id."""
    with (DESIGN / "cases.tsv").open() as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["id"]: (row["kind"], row["source"]) for row in rows}


def rows() -> list[tuple[str, ...]]:
    """Id, source, outcome and tests of every row of the table."""
    found = [ROW.fullmatch(line) for line in (DESIGN / "cases.md").read_text().splitlines()]
    return [match.groups() for match in found if match]


@cache
def known_tests() -> dict[str, frozenset[str]]:
    """Tests by file name, which is unique in the repository: functions, and classes that state machines are."""
    files = [file for folder in TESTS for file in (REPOSITORY / folder).rglob("test_*.py")]
    return {file.name: _defined(file) for file in files}


def _defined(file: Path) -> frozenset[str]:
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in found if name.startswith(("test_", "Test")))


def test_every_case_has_one_row() -> None:
    count = Counter(id for id, *_ in rows())
    assert {id for id, number in count.items() if number != 1} == set()
    assert count.keys() == listed().keys()


def test_every_source_is_the_cases() -> None:
    wrong = {id: source for id, source, *_ in rows() if not _cites(source, listed()[id][1])}
    assert wrong == {}


def _cites(cell: str, source: str) -> bool:
    words = source.split()
    place = words[0].replace("#", "/issues/")
    return place in cell if "#" in words[0] else words[0] in cell and words[2] in cell


@pytest.mark.parametrize(("id", "tests"), [(id, tests) for id, _, _, tests in rows()])
def test_every_test_exists(id: str, tests: str) -> None:
    named = re.findall(r"`([^`]+)`", tests)
    assert named
    for name in named:
        file, _, test = name.partition("::")
        assert test in known_tests().get(file, ()), f"{id}: there is no {name}"
