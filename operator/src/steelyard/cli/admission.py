"""The CRD's CEL rules, evaluated without an API server, on the schema that `steelyard crds` writes.

As the API server does it: defaults are filled in first, then every rule of every level is asked. Imitated are the three
functions of Kubernetes' CEL library that our rules use; cost limits are not.
"""

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from steelyard.api.crd import KINDS, definition
from steelyard.api.quantities import Quantity

Schema = dict[str, Any]


@cache
def kind_schema(kind: str) -> Schema:
    """Give the schema of a kind as the CRD carries it."""
    found = next(entry for entry in KINDS if entry.name == kind)
    schema: Schema = definition(found)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def broken_rules(body: dict[str, Any]) -> list[str]:
    """Give the rules that an object breaks, as the API server words them: the path, then the rule's message."""
    schema = kind_schema(body["kind"])
    return [message for _, message in _broken_rules(with_defaults(copy.deepcopy(body), schema), schema, "")]


def with_defaults(value: Any, schema: Schema) -> Any:
    """Fill in defaults, as the API server does before it validates."""
    for name, child in schema.get("properties", {}).items():
        if isinstance(value, dict):
            if name not in value and "default" in child:
                value[name] = copy.deepcopy(child["default"])
            if name in value:
                value[name] = with_defaults(value[name], child)
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(item, schema["items"]) for item in value]
    if isinstance(value, dict) and "additionalProperties" in schema:
        return {key: with_defaults(item, schema["additionalProperties"]) for key, item in value.items()}
    return value


def _broken_rules(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        try:
            kept = evaluate(rule["rule"], value)
        except CELEvalError:  # the API server takes a rule that it cannot evaluate for a broken one
            kept = False
        if not kept:
            yield path, f"{path or '.'}: {rule['message']}"
    if isinstance(value, dict):
        for name, child in schema.get("properties", {}).items():
            if name in value:
                yield from _broken_rules(value[name], child, f"{path}.{name}")
        if "additionalProperties" in schema:
            for name, item in value.items():
                yield from _broken_rules(item, schema["additionalProperties"], f"{path}[{name}]")
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _broken_rules(item, schema.get("items", {}), f"{path}[{index}]")


def evaluate(expression: str, value: Any) -> Any:
    """Evaluate a CEL expression with `self` bound to a value."""
    result = _program(expression).evaluate({"self": json_to_cel(value)})
    if isinstance(result, celtypes.BoolType):
        return bool(result)
    return str(result)


@cache
def _program(expression: str) -> celpy.Runner:
    environment = celpy.Environment()
    functions: dict[str, Callable[..., Any]] = {"split": _split, "quantity": _quantity, "compareTo": _compare}
    return environment.program(environment.compile(expression), functions=functions)


def _split(text: celtypes.StringType, separator: celtypes.StringType) -> celtypes.ListType:
    return celtypes.ListType([celtypes.StringType(part) for part in str(text).split(str(separator))])


def _quantity(text: celtypes.StringType) -> celtypes.DoubleType:
    return celtypes.DoubleType(float(Quantity(str(text)).value))


def _compare(left: celtypes.DoubleType, right: celtypes.DoubleType) -> celtypes.IntType:
    return celtypes.IntType((left > right) - (left < right))
