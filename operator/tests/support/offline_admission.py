"""Admission as the API server does it, without one: defaults, schema and CEL rules of a CRD, read from the generated YAML.

What is imitated: filling of defaults, JSON schema validation, unknown fields refused (as `kubectl` asks for), and CEL
with the three functions of Kubernetes' library that our rules use. What is not: cost limits; the end-to-end tests have
a real API server for these.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import jsonschema
from steelyard.cli.admission import Schema, broken_rules, kind_schema, with_defaults


def admit(body: dict[str, Any]) -> list[str]:
    """Give the errors with which an API server would refuse the object; empty: it is stored."""
    filled = with_defaults(copy.deepcopy(body), kind_schema(body["kind"]))
    errors = [f"{error.json_path}: {error.message}" for error in _validator(body["kind"]).iter_errors(filled)]
    return errors or broken_rules(body)


@cache
def _validator(kind: str) -> jsonschema.Draft4Validator:
    return jsonschema.Draft4Validator(closed_schema(kind))


def closed_schema(kind: str) -> Schema:
    """Give the schema of a kind with unknown fields refused, as `kubectl` asks the API server to do."""
    return _closed(kind_schema(kind))


def _closed(schema: Schema) -> Schema:
    """Refuse unknown fields where the API server would prune them; metadata is not ours to judge."""
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {
            name: child if name == "metadata" and "properties" not in child else _closed(child)
            for name, child in schema["properties"].items()
        }
        closed["additionalProperties"] = False
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    return closed
