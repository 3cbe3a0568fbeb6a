"""From pydantic's JSON schema to a structural OpenAPI v3 schema, the dialect that CustomResourceDefinitions take.

Kubernetes wants every reference resolved, one type a node, no `null`, boolean exclusive bounds, and no
`additionalProperties` beside `properties`. An optional field is simply not required. A default that is an object
holds the defaults of its fields, because the API server judges a default by the CEL rules before it fills anything in; where it
would stay empty there is no default at all.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from steelyard.api.forms import WORDS
from steelyard.api.record import Free, Record

Schema = dict[str, Any]

_COPIED = (
    "type",
    "format",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)


def structural(kind: type[Record], rules: Iterable[tuple[type[Record], Schema]]) -> Schema:
    """Give the structural schema of a kind, with each CEL rule at every occurrence of the type it belongs to."""
    source = kind.model_json_schema(by_alias=True, mode="validation")
    validations: dict[str, list[Schema]] = {}
    for on, rule in rules:
        validations.setdefault(on.__name__, []).append(rule)
    return _Walk(source.get("$defs", {}), validations).node({**source, "$name": kind.__name__})


class _Walk:
    """Resolves references while it copies; holds nothing but the definitions it looks up."""

    def __init__(self, definitions: Mapping[str, Schema], validations: Mapping[str, list[Schema]]) -> None:
        self.definitions = definitions
        self.validations = validations

    def node(self, source: Schema) -> Schema:
        """Convert one schema node and all below it."""
        source = self.resolve(source)
        if "$name" not in source and "type" not in source and "x-kubernetes-int-or-string" not in source:
            raise TypeError(f"this schema has no type, which Kubernetes refuses: {source}")
        schema: Schema = {}
        if description := source.get("description"):
            schema["description"] = " ".join(description.split())
        schema.update({key: source[key] for key in _COPIED if key in source})
        schema.update({key: value for key, value in source.items() if key.startswith("x-kubernetes-")})
        if WORDS in source:
            del schema["pattern"]  # a rule says it
        if "const" in source:
            schema["enum"] = [source["const"]]
        if schema.get("type") == "integer":
            schema["format"] = "int64"
        for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if bound in source:
                schema.update({limit: source[bound], bound: True})
        if "x-kubernetes-int-or-string" in source:
            schema["anyOf"] = source["anyOf"]
        if source.get("$name") == Free.__name__:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        elif "properties" in source:
            schema["properties"] = {name: self.node(child) for name, child in source["properties"].items()}
        elif isinstance(extra := source.get("additionalProperties"), Mapping):
            schema["additionalProperties"] = self.node(dict(extra))
        if "items" in source:
            schema["items"] = self.node(source["items"])
        if (default := source.get("default")) is not None and (stored := _default(default, schema)) is not None:
            schema["default"] = stored
        if found := self.validations.get(source.get("$name", "")):
            schema["x-kubernetes-validations"] = found
        return schema

    def resolve(self, source: Schema) -> Schema:
        """Replace a reference by what it names and an optional type by the type; what is written beside it rules."""
        if "$ref" in source:
            name = source["$ref"].rsplit("/", 1)[1]
            beside = {key: value for key, value in source.items() if key != "$ref"}
            return self.resolve({**self.definitions[name], "$name": name, **beside})
        if "anyOf" in source and "x-kubernetes-int-or-string" not in source:
            kept = [option for option in source["anyOf"] if option.get("type") != "null"]
            if len(kept) != 1:
                raise TypeError(f"a structural schema has one type a node, this one has several: {kept}")
            beside = {key: value for key, value in source.items() if key != "anyOf"}
            return self.resolve({**kept[0], **beside})
        return source


def _default(value: Any, schema: Schema) -> Any:
    """Say what the API server should store for an absent field; None: nothing."""
    if schema.get("type") == "object":
        return {
            name: child["default"] for name, child in schema.get("properties", {}).items() if "default" in child
        } or None
    return None if value == [] else value
