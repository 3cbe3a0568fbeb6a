"""Our CustomResourceDefinitions, made from the types: the same description for Python, the API server and the docs."""

from dataclasses import dataclass
from typing import Any

import yaml

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import GROUP, VERSION
from steelyard.api.record import Record
from steelyard.api.rules import RULES, Rule
from steelyard.api.service import InferenceService
from steelyard.api.structural import Schema, structural

_HEADER = "# Generated from operator/src/steelyard/api by `make generate`; do not edit.\n"


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; `wide` ones appear with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    wide: bool = False

    def manifest(self) -> dict[str, Any]:
        """Give the column as the API server takes it; priority 1 is the wide table."""
        shown = {"name": self.name, "type": self.type, "jsonPath": self.path, "description": self.description}
        return {key: value for key, value in shown.items() if value} | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True)
class Kind:
    """What a CustomResourceDefinition says besides its schema."""

    type: type[Record]
    plural: str
    scope: str
    short: str
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """The kind's name, such as InferenceService."""
        return self.type.__name__


KINDS = (
    Kind(
        type=InferenceService,
        plural="inferenceservices",
        scope="Namespaced",
        short="isv",
        columns=(
            Column("Model", ".status.model", description="Name of the model that clients send."),
            Column("Ready", ".status.ready", description="Ready of wanted replicas."),
            Column("Ratio", ".status.ratio", description="prefill:decode now, in accelerators."),
            Column("TTFT", ".spec.objectives.timeToFirstToken", description="Objective for the time to first token."),
            Column(
                "TPOT", ".spec.objectives.timePerOutputToken", description="Objective for the time per output token."
            ),
            Column("Engine", ".spec.engine.name", description="Program that computes tokens.", wide=True),
            Column("Accelerator", ".spec.accelerator", description="Hardware it runs on.", wide=True),
            Column("Reason", '.status.conditions[?(@.type=="Available")].reason', description="State.", wide=True),
            Column("URL", ".status.url", description="Address of the API inside the cluster.", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
    ),
    Kind(
        type=Accelerator,
        plural="accelerators",
        scope="Cluster",
        short="acc",
        columns=(
            Column("Vendor", ".spec.vendor"),
            Column("Memory", ".spec.memory", description="Memory of one accelerator."),
            Column("Per node", ".spec.perNode", "integer", "Accelerators in one node."),
            Column("Price", ".spec.pricePerHour", "number", "Price of one for an hour."),
            Column("Availability", ".spec.availability"),
            Column("Resource", ".spec.resource", description="Node resource that counts it.", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
    ),
)


def validation(rule: Rule) -> Schema:
    """Give a rule as the API server takes it."""
    entry = {"rule": rule.cel, "message": rule.message, "reason": rule.reason}
    if rule.field:
        entry["fieldPath"] = f".{rule.field}"
    return entry


def schema(kind: Kind) -> Schema:
    """Give the structural schema of a kind, with its CEL rules; metadata is Kubernetes' own."""
    tree = structural(kind.type, [(rule.on, validation(rule)) for rule in RULES])
    standard: Schema = {
        "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
        "kind": {"type": "string", "description": "Kind of this object."},
        "metadata": {"type": "object"},
    }
    ours = {name: child for name, child in tree["properties"].items() if name in ("spec", "status")}
    return {**tree, "required": ["spec"], "properties": {**standard, **ours}}


def definition(kind: Kind) -> dict[str, Any]:
    """Give the CustomResourceDefinition of a kind."""
    tree = schema(kind)
    version: dict[str, Any] = {"name": VERSION, "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": tree}
    if "status" in tree["properties"]:
        version["subresources"] = {"status": {}}
    version["additionalPrinterColumns"] = [column.manifest() for column in kind.columns]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": kind.scope,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["steelyard"],
            },
            "versions": [version],
        },
    }


def files() -> dict[str, str]:
    """Give the generated YAML files by name; the same input gives the same bytes."""
    return {
        f"{GROUP}_{kind.plural}.yaml": _HEADER
        + yaml.dump(definition(kind), Dumper=_Plain, sort_keys=False, width=110, allow_unicode=True)
        for kind in KINDS
    }


class _Plain(yaml.SafeDumper):
    """Writes equal objects out each time instead of as YAML anchors, which some tools refuse."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
