"""Structured output in requests: OpenAI's `response_format` and vLLM's `structured_outputs` become one checked form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from .errors import ApiError

_SCHEMA_LIMIT = 16 * 1024  # bytes
_DEPTH_LIMIT = 64  # objects and arrays inside of each other
_CHOICE_LIMIT = 256
_REGEX_LIMIT = 1024
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Schema:
    """The answer is JSON that a JSON schema describes."""

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer is one of these texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The answer as a whole matches a regular expression."""

    regex: str


Form = Schema | Choice | Pattern


def read_form(fields: Mapping[str, Any]) -> Form | None:
    """Return the form that a request's fields ask for, None for free text; raise ApiError."""
    found = [form for form in (_response_format(fields), _structured_outputs(fields)) if form is not None]
    if len(found) > 1:
        raise ApiError(400, "structured_outputs: response_format asks for a form too; send one.", "structured_outputs")
    return found[0] if found else None


def _response_format(fields: Mapping[str, Any]) -> Form | None:
    wish = fields.get("response_format")
    if wish is None:
        return None
    kind = wish.get("type") if isinstance(wish, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return Schema(_ANY_OBJECT)
    if kind == "json_schema":
        holder = wish.get("json_schema")
        return _checked(holder.get("schema") if isinstance(holder, dict) else None, "response_format")
    raise ApiError(
        400,
        "response_format: send type text, json_object, or json_schema with json_schema.schema.",
        "response_format",
        "unsupported_value",
    )


def _structured_outputs(fields: Mapping[str, Any]) -> Form | None:
    """Read vLLM's object: `json`, `json_object`, `regex` or `choice`, one of them."""
    field = "structured_outputs"
    wish = fields.get(field)
    if wish is None:
        return None
    given = {name: value for name, value in wish.items() if value is not None} if isinstance(wish, dict) else {}
    if len(given) != 1:
        raise ApiError(400, f"{field}: send an object with one of json, json_object, regex and choice.", field)
    name, value = next(iter(given.items()))
    if name == "json_object" and value is True:
        return Schema(_ANY_OBJECT)
    if name == "json":
        return _checked(_decoded(value, field), field)
    if name == "choice":
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            raise ApiError(400, f"{field}: choice must be a list of texts, none of them empty.", field)
        if not 1 <= len(value) <= _CHOICE_LIMIT:
            raise ApiError(400, f"{field}: choice has {len(value)} texts; send 1 to {_CHOICE_LIMIT}.", field)
        return Choice(tuple(value))
    if name == "regex":
        if not isinstance(value, str) or not 1 <= len(value) <= _REGEX_LIMIT:
            raise ApiError(400, f"{field}: regex must be a text of 1 to {_REGEX_LIMIT} characters.", field)
        return Pattern(value)
    raise ApiError(
        400, f"{field}: {name[:40]} is not supported; use json, regex or choice.", field, "unsupported_value"
    )


def _decoded(value: object, field: str) -> object:
    """Take a schema that is written as a string, as vLLM does."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(400, f"{field}: json is not JSON: {error}.", field) from error


def _checked(schema: object, field: str) -> Schema:
    if not isinstance(schema, dict):
        raise ApiError(400, f"{field}: the schema must be a JSON object.", field)
    if _depth(schema) > _DEPTH_LIMIT:
        raise ApiError(400, f"{field}: the schema is nested more than {_DEPTH_LIMIT} deep; flatten it.", field)
    size = len(msgspec.json.encode(schema))
    if size > _SCHEMA_LIMIT:
        raise ApiError(400, f"{field}: the schema has {size} bytes; send at most {_SCHEMA_LIMIT}.", field)
    return Schema(schema)


def _depth(value: object) -> int:
    """Return how deep objects and arrays are nested, without recursion: the value is the client's."""
    deepest, layer = 0, [value]
    while layer:
        inner: list[object] = []
        for one in layer:
            inner.extend(one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
        if not any(isinstance(one, dict | list) for one in layer):
            break
        deepest += 1
        layer = inner
    return deepest
