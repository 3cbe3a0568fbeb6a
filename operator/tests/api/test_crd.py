"""The generated CRDs are structural, bounded, say the same as the types, and are what the repository holds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from offline_admission import admit
from pydantic import BaseModel
from steelyard.api import crd, reference
from steelyard.api.record import Free
from steelyard.api.rules import sample
from steelyard.api.service import InferenceService
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.cli import generated
from steelyard.cli.admission import kind_schema, with_defaults

ROOT = Path(__file__).parents[3]
TYPES = {"object", "array", "string", "integer", "number", "boolean"}
KEYS = {
    "type", "format", "description", "properties", "required", "items", "additionalProperties", "enum", "default",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "minItems", "maxItems",
    "maxProperties", "anyOf", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-validations",
}  # fmt: skip

Node = dict[str, Any]


def nodes(schema: Node, path: str) -> Iterator[tuple[str, Node]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}[*]")


ALL = [pair for kind in crd.KINDS for pair in nodes(kind_schema(kind.name), kind.name)]
OURS = [(path, node) for path, node in ALL if not re.fullmatch(r"\w+(\.(metadata|apiVersion|kind))?", path)]


def failing(test: Any, pairs: list[tuple[str, Node]] = OURS) -> list[str]:
    return [path for path, node in pairs if not test(node)]


def test_every_node_has_one_type_or_is_int_or_string() -> None:
    assert failing(lambda n: (n.get("type") in TYPES) != bool(n.get("x-kubernetes-int-or-string")), ALL) == []


def test_only_known_keywords() -> None:
    assert failing(lambda n: set(n) <= KEYS, ALL) == []


def test_any_of_only_as_kubernetes_allows_it() -> None:
    form = [{"type": "integer"}, {"type": "string"}]
    assert (
        failing(lambda n: n.get("anyOf", form) == form and ("anyOf" in n) == ("x-kubernetes-int-or-string" in n), ALL)
        == []
    )


def test_no_map_beside_properties() -> None:
    assert failing(lambda n: not ("additionalProperties" in n and "properties" in n), ALL) == []


def test_everything_is_bounded() -> None:
    def bounded(node: Node) -> bool:
        match node.get("type"):
            case "array":
                return "maxItems" in node and "items" in node
            case "string":
                return "maxLength" in node or "enum" in node or node.get("format") == "date-time"
            case "object":
                return "properties" in node or "x-kubernetes-preserve-unknown-fields" in node or "maxProperties" in node
            case _:
                return True

    assert failing(bounded) == []


def test_every_list_says_how_it_merges_and_keys_are_required() -> None:
    lists = [(path, node) for path, node in OURS if node.get("type") == "array"]
    assert failing(lambda n: n.get("x-kubernetes-list-type") in ("atomic", "map"), lists) == []
    keyed = [(path, node) for path, node in lists if node["x-kubernetes-list-type"] == "map"]
    assert keyed
    assert failing(lambda n: set(n["x-kubernetes-list-map-keys"]) <= set(n["items"]["required"]), keyed) == []


def test_everything_is_described() -> None:
    named = [(path, node) for path, node in OURS if not path.endswith(("[]", "[*]"))]
    assert failing(lambda n: len(n.get("description", "")) >= 8 and "\n" not in n["description"], named) == []


def test_patterns_and_defaults_agree() -> None:
    def fits(node: Node) -> bool:
        default = node.get("default")
        return not isinstance(default, str) or bool(re.search(node.get("pattern", ""), default))

    assert failing(fits) == []


def test_alternatives_in_patterns_are_anchored_as_a_whole() -> None:
    """`^a|b$` would let anything through that begins with a."""
    patterned = [(path, node) for path, node in OURS if "|" in re.sub(r"\(.*\)|\[[^]]*\]", "", node.get("pattern", ""))]
    assert [path for path, _ in patterned] == []


def test_rule_fields_exist_where_the_rule_stands() -> None:
    def there(node: Node) -> bool:
        fields = [rule["fieldPath"][1:] for rule in node.get("x-kubernetes-validations", ()) if "fieldPath" in rule]
        return set(fields) <= set(node.get("properties", {}))

    assert failing(there, ALL) == []


def test_printer_columns_lead_to_fields() -> None:
    for kind in crd.KINDS:
        paths = {path.removeprefix(kind.name) for path, _ in nodes(kind_schema(kind.name), kind.name)}
        for column in kind.columns:
            plain = re.sub(r"\[\?.*?\]", "[]", column.path)
            assert plain in paths or plain == ".metadata.creationTimestamp", column.name


def test_api_server_defaults_and_types_defaults_are_the_same() -> None:
    """A service that the API server has filled in reads like the bare one: neither side has defaults of its own."""
    for extra in ({}, {"prefill": {}, "decode": {"template": {"spec": {"containers": [{"name": "engine"}]}}}}):
        bare = sample({"spec": extra})
        filled = with_defaults(sample({"spec": extra}), kind_schema("InferenceService"))
        assert filled != bare
        assert InferenceService.read(filled) == InferenceService.read(bare)


def test_types_write_what_the_api_server_admits() -> None:
    written = InferenceService.read(
        sample({"spec": {"prefill": {}, "objectives": {"timeToFirstToken": "1s"}}})
    ).manifest()
    assert admit(written) == []


@pytest.mark.parametrize("name", ACCELERATORS)
def test_the_catalogue_is_admitted(name: str) -> None:
    assert admit(ACCELERATORS[name].manifest()) == []


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"decode": {"replicas": {"min": 0}}}, "minimum"),
        ({"decode": {"replica": {"min": 1}}}, "'replica' was unexpected"),
        ({"engine": {"name": "ollama"}}, "not one of"),
        ({"model": {"uri": "http://example.org/x"}}, "write hf://OWNER/NAME[@REVISION], oci://"),
        ({"objectives": {"timeToFirstToken": "500 ms"}}, "does not match"),
        ({"objectives": {"attainment": 100}}, "100"),
        ({"engine": {"args": ["x" * 5000]}}, "too long"),
        ({"prefill": {"template": {"spec": {"hostNetwork": True}}}}, "'hostNetwork' was unexpected"),
        (
            {"prefill": {"template": {"spec": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}}}},
            "'hostPath' was unexpected",
        ),
        ({"prefill": {"template": {"spec": {"serviceAccountName": "admin"}}}}, "'serviceAccountName' was unexpected"),
        (
            {"prefill": {"template": {"spec": {"containers": [{"name": "a", "image": "b", "securityContext": {}}]}}}},
            "'securityContext' was unexpected",
        ),
    ],
)
def test_schema_refuses(spec: Node, says: str) -> None:
    errors = admit(sample({"spec": spec}))
    assert any(says in error for error in errors), errors


def test_every_type_describes_every_field() -> None:
    def types(record: type[BaseModel], seen: set[type[BaseModel]]) -> None:
        for cls in record.__subclasses__():
            seen.add(cls)
            types(cls, seen)

    seen: set[type[BaseModel]] = set()
    types(InferenceService.__mro__[1], seen)
    missing = [
        f"{cls.__name__}.{name}"
        for cls in seen - {Free}
        if cls.__module__.startswith("steelyard.api.")
        for name, field in cls.model_fields.items()
        if not field.description
        and name not in ("api_version", "kind", "metadata")
        and not cls.__name__.endswith("Source")
    ]
    assert missing == []


def test_repository_holds_what_the_types_say() -> None:
    files = {ROOT / "crds" / name: text for name, text in crd.files().items()}
    files |= {ROOT / "docs" / "reference" / f"{kind.name.lower()}.md": reference.page(kind) for kind in crd.KINDS}
    assert generated.difference(files) == "", "run `make generate`"


def test_generation_is_deterministic() -> None:
    assert crd.files() == crd.files()
    assert all("&id" not in text and "title:" not in text for text in crd.files().values())


def test_a_definition_is_small_enough_for_client_side_apply() -> None:
    """kubectl apply keeps the object in an annotation, which Kubernetes limits to 262,144 bytes."""
    assert all(len(text) < 250_000 for text in crd.files().values())
