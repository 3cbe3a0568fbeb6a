"""The table of abilities cannot lie: what it says an engine has is accepted and visible in the pods, what it lacks is refused."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from engine_bodies import BASES, rendered, with_sample
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_bodies import KNOWN, merged, service
from steelyard.api import structural
from steelyard.api.crd import KINDS, schema
from steelyard.catalog.abilities import ABILITIES, ENGINE_NAMES, ROLES, SHOWN, Setting, row_of
from steelyard.cli.abilities_page import page
from steelyard.decide.accept import refusals

# What the engine does anyway, so that nothing in the pods can change.
ANYWAY = {
    ("llama-cpp", "quantization.kvCache", "none"): "it keeps 16 bits",
    ("simulated", "quantization.kvCache", "none"): "it keeps 16 bits",
    ("llama-cpp", "cache.prefixReuse", "true"): "it always shares beginnings",
    ("simulated", "cache.prefixReuse", "true"): "it always shares beginnings",
    ("sglang", "cache.prefixReuse", "true"): "its radix cache is on unless it is switched off",
    ("vllm", "transfer.connector", "nixl"): "its usual connector",
    ("sglang", "topology", "Aggregated"): "the only one that it has here",
    ("tensorrt-llm", "topology", "Aggregated"): "the only one that it has here",
}
NEUTRAL = {"auto", "false", "1", "Checkpoint", "chunked", "Disaggregated", "http"}

# Fields that no engine has a say in: the operator, the gateway or the autoscaler alone carry them out.
OPERATORS = (
    "model.uri", "model.servedName", "model.contextLength", "model.shape", "engine.name", "engine.image", "engine.args",
    "engine.env", "accelerator", "resources", "template", "replicas", "routing.order", "routing.limits", "routing.replicas",
    "routing.requestTimeout", "routing.apiKeys", "routing.affinity", "objectives", "autoscaling", "rollout",
    "model.cache", "engine.prepull", "quantization.job",
)  # fmt: skip

CELLS = [(engine, row) for engine, row in itertools.product(ENGINE_NAMES, ABILITIES)]
each_cell = pytest.mark.parametrize(("engine", "row"), CELLS, ids=lambda v: v if isinstance(v, str) else v.title)


@each_cell
def test_what_an_engine_has_is_accepted_and_what_it_lacks_is_refused_by_field(engine: str, row: Setting) -> None:
    found = refusals(service(with_sample(BASES[engine], row)), KNOWN)
    if row.shown(engine):
        told = [f for f in found if row_of(f.field.removeprefix("spec."), f.value) is row]
        assert told == []
        return
    about = [f for f in found if row.field.split(".")[-1] in f.field.split(".")]
    assert about, [str(f) for f in found]
    assert any(str(row.lack(engine)) in f.problem and f"engine {engine}" in f.problem for f in about)


@each_cell
def test_what_an_engine_has_is_visible_in_its_pods(engine: str, row: Setting) -> None:
    base, spec = BASES[engine], with_sample(BASES[engine], row)
    if refusals(service(spec), KNOWN) or row.value in NEUTRAL or (engine, row.field, row.value) in ANYWAY:
        return
    assert rendered(spec) != rendered(base)


def test_the_exceptions_are_of_rows_that_exist() -> None:
    rows = {(row.field, row.value) for row in ABILITIES}
    assert {(field, value) for _, field, value in ANYWAY} <= rows


def test_every_lack_names_a_remedy() -> None:
    for row in ABILITIES:
        for engine, cell in row.cells.items():
            assert cell in SHOWN or ("; " in cell and len(cell) > 30), (row.title, engine, cell)


def test_every_field_of_the_api_is_in_the_table_or_no_engines_business() -> None:
    """A field that nobody judges could be accepted and dropped (kserve/kserve#5773)."""
    kind = next(kind for kind in KINDS if kind.name == "InferenceService")
    fields = set(leaves(schema(kind)["properties"]["spec"], ""))
    table = {row.field for row in ABILITIES}
    unknown = {
        field
        for field in fields
        if not any(field == known or field.startswith(f"{known}.") for known in (*table, *OPERATORS))
    }
    assert unknown == set()
    assert [
        row.field for row in ABILITIES if not any(f == row.field or f.startswith(f"{row.field}.") for f in fields)
    ] == []


def test_the_page_says_each_reason_once_and_numbers_lead_to_it() -> None:
    text = page()
    for row in ABILITIES:
        for engine in ENGINE_NAMES:
            if (lack := row.lack(engine)) is not None:
                assert lack in text
    assert set(re.findall(r"no \((\d+)\)", text)) == set(re.findall(r"(?m)^- \((\d+)\)", text))


def test_every_word_of_the_page_is_defined_on_it() -> None:
    words = set(re.findall(r"(?m)^\| (\w+) \| ", page().partition("Nothing more is claimed")[0])) - {"word"}
    loads = re.findall(
        rf"(?m)^\| (?:{'|'.join(ENGINE_NAMES)}) \|.* \| (\w+)[^|]* \|$", page().partition("## Settings")[0]
    )
    assert len(loads) == len(ENGINE_NAMES)
    assert {row.shown(engine) for row in ABILITIES for engine in ENGINE_NAMES if row.shown(engine)} | set(
        loads
    ) == words
    assert "rendered" not in loads, "what Prometheus evaluates is no file"


def leaves(node: structural.Schema, name: str) -> Any:
    for key, child in node.get("properties", {}).items():
        below = "" if not name and key in ROLES else f"{name}.{key}".lstrip(".")
        if "properties" in child:
            yield from leaves(child, below)
        else:
            yield below


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(ENGINE_NAMES), st.lists(st.sampled_from(ABILITIES), max_size=5, unique_by=lambda row: row.field))
def test_any_accepted_combination_renders_and_shows_each_of_its_settings(engine: str, rows: list[Setting]) -> None:
    """Property: a service is refused, or all that it sets can be seen in what is made of it."""
    spec = BASES[engine]
    for row in rows:
        spec = with_sample(spec, row)
    if refusals(service(spec), KNOWN):
        return
    text = rendered(spec)
    for row in rows:
        if row.value in NEUTRAL or (engine, row.field, row.value) in ANYWAY:
            continue
        others = BASES[engine]
        for other in rows:
            if other is not row:
                others = with_sample(others, other)
        if with_sample(others, row) != spec or covered(row, rows) or refusals(service(others), KNOWN):
            continue
        assert rendered(others) != text, row.title


def covered(row: Setting, rows: list[Setting]) -> bool:
    """Whether another row's sample sets all that this one's does."""
    return any(other is not row and merged(other.sample, row.sample) == other.sample for other in rows)
