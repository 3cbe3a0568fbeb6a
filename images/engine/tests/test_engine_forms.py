"""Reading the form that an answer must have: what is served, and what is refused with field and remedy."""

import json

import pytest
from steelyard_engine.errors import ApiError
from steelyard_engine.structure import Choice, Form, Pattern, Schema, read_form

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


def nested(depth: int) -> dict[str, object]:
    found: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        found = {"items": found}
    return found


READ: list[tuple[dict[str, object], Form | None]] = [
    ({}, None),
    ({"response_format": None}, None),
    ({"response_format": {"type": "text"}}, None),
    ({"response_format": {"type": "json_object"}}, Schema({"type": "object"})),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, Schema(SCHEMA)),
    ({"structured_outputs": {"json": SCHEMA}}, Schema(SCHEMA)),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, Schema(SCHEMA)),
    ({"structured_outputs": {"json_object": True}}, Schema({"type": "object"})),
    ({"structured_outputs": {"choice": ["a", "b"], "regex": None}}, Choice(("a", "b"))),
    ({"structured_outputs": {"regex": "a+"}}, Pattern("a+")),
]


@pytest.mark.parametrize(("fields", "form"), READ)
def test_read(fields: dict[str, object], form: Form | None) -> None:
    assert read_form(fields) == form


REFUSED: list[tuple[dict[str, object], str, str]] = [
    ({"response_format": "json"}, "response_format", "send type text, json_object, or json_schema"),
    ({"response_format": {"type": "xml"}}, "response_format", "send type text, json_object, or json_schema"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "must be a JSON object"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": []}}}, "response_format", "JSON object"),
    ({"structured_outputs": {}}, "structured_outputs", "one of json, json_object, regex and choice"),
    ({"structured_outputs": []}, "structured_outputs", "one of json, json_object, regex and choice"),
    ({"structured_outputs": {"json": SCHEMA, "choice": ["a"]}}, "structured_outputs", "one of"),
    ({"structured_outputs": {"regex": ""}}, "structured_outputs", "1 to 1024 characters"),
    ({"structured_outputs": {"regex": "a" * 1025}}, "structured_outputs", "1 to 1024 characters"),
    (
        {"structured_outputs": {"grammar": "root ::= x"}},
        "structured_outputs",
        "grammar is not supported; use json, regex or choice",
    ),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs", "json is not JSON"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs", "send 1 to 256"),
    ({"structured_outputs": {"choice": ["x"] * 257}}, "structured_outputs", "has 257 texts"),
    ({"structured_outputs": {"choice": ["x", ""]}}, "structured_outputs", "none of them empty"),
    ({"structured_outputs": {"choice": "yes"}}, "structured_outputs", "a list of texts"),
    ({"structured_outputs": {"json": nested(65)}}, "structured_outputs", "nested more than 64 deep; flatten it"),
    ({"structured_outputs": {"json": {"enum": ["x" * 20_000]}}}, "structured_outputs", "send at most 16384"),
    (
        {"response_format": {"type": "json_object"}, "structured_outputs": {"json": SCHEMA}},
        "structured_outputs",
        "response_format asks for a form too; send one",
    ),
]


@pytest.mark.parametrize(("fields", "field", "part"), REFUSED)
def test_refused(fields: dict[str, object], field: str, part: str) -> None:
    with pytest.raises(ApiError) as found:
        read_form(fields)
    assert (found.value.status, found.value.param) == (400, field)
    assert part in found.value.message
