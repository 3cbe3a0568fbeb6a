"""The reference page of a kind, in Markdown, made from the same schema as its CRD."""

from collections.abc import Iterator
from typing import Any

from steelyard.api.crd import Kind, schema
from steelyard.api.labels import API_VERSION
from steelyard.api.structural import Schema

_HEADER = "<!-- Generated from operator/src/steelyard/api by `make generate`; do not edit. -->"


def page(kind: Kind) -> str:
    """Write the page: one table of fields for each object of the schema, with the rules that bind them."""
    tree = schema(kind)
    scope = "namespaced" if kind.scope == "Namespaced" else "cluster-wide"
    lines = [_HEADER, "", f"# {kind.name}", "", tree["description"], ""]
    lines += [
        f"`apiVersion: {API_VERSION}`, `kind: {kind.name}`, {scope}; `kubectl get {kind.short}` lists them and"
        f" `kubectl explain {kind.short}.spec` shows this page's text. Durations are written `500ms`, `1.5s`, `5m` or as"
        " a number of seconds; quantities `8`, `500m`, `4Mi`.",
        "",
    ]
    lines += [f"- {rule['message']}" for rule in tree.get("x-kubernetes-validations", ())]
    for name in ("spec", "status"):
        if name in tree["properties"]:
            lines += _section(name, tree["properties"][name])
    return "\n".join(lines).rstrip() + "\n"


def _section(path: str, node: Schema) -> Iterator[str]:
    yield from (
        "",
        f"## {path}",
        "",
        node.get("description", ""),
        "",
        "| field | type | default | meaning |",
        "|---|---|---|---|",
    )
    for name, child in node["properties"].items():
        required = " (required)" if name in node.get("required", ()) else ""
        yield f"| `{name}`{required} | {_type(child)} | {_default(child)} | {_cell(child.get('description', ''))} |"
    rules = node.get("x-kubernetes-validations", ())
    if rules:
        yield from ("", "Rules:", "", *(f"- {rule['message']}" for rule in rules))
    for name, child in node["properties"].items():
        inner, suffix = (child["items"], "[]") if "items" in child else (child, "")
        if "properties" in inner:
            yield from _section(f"{path}.{name}{suffix}", inner)


def _type(node: Schema) -> str:
    if "x-kubernetes-int-or-string" in node:
        if "%" in node["pattern"]:
            return "number or percentage"
        return "duration" if "ms" in node["pattern"] else "quantity"
    if "enum" in node:
        return " \\| ".join(f"`{value}`" for value in node["enum"])
    if "items" in node:
        return f"list of {_type(node['items'])}"
    if "additionalProperties" in node:
        return f"map of {_type(node['additionalProperties'])}"
    return str(node["type"]) + _bounds(node)


def _bounds(node: Schema) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    match (low is not None, high is not None):
        case (True, True):
            return f", {_number(low)} to {_number(high)}"
        case (True, False):
            return f", from {_number(low)}"
        case _:
            return ""


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _default(node: Schema) -> str:
    return f"`{node['default']}`".replace("True", "true").replace("False", "false") if node.get("default") else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
