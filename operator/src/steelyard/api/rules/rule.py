"""What a CEL rule is, and how its examples become whole objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from steelyard.api.record import Record

Example = Mapping[str, Any]
FailureReason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]


@dataclass(frozen=True)
class Rule:
    """One CEL rule: `cel` must be true of every value of type `on` ("self"), else `message` goes to the user.

    `accept` and `reject` are laid over the smallest valid object by `sample`; `field` is the field of `self` that the
    error points at. Messages are constant: the API server counts a computed one as if numbers could be of any length, and refuses.
    """

    name: str
    on: type[Record]
    cel: str
    message: str
    accept: Example
    reject: Example
    field: str | None = None
    reason: FailureReason = "FieldValueInvalid"


def sample(example: Example) -> dict[str, Any]:
    """Lay an example over the smallest valid InferenceService."""
    smallest = {
        "apiVersion": "serving.steelyard.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "sample", "namespace": "default"},
        "spec": {"model": {"uri": "oci://steelyard/model-smollm2:1"}},
    }
    return _over(smallest, example)


def _over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged


def spec(**fields: Any) -> dict[str, Any]:
    """Give an example that sets fields of the spec."""
    return {"spec": fields}


def decode(**fields: Any) -> dict[str, Any]:
    """Give an example that sets fields of the decode role, which stands for every role."""
    return spec(decode=fields)


def pod(**fields: Any) -> dict[str, Any]:
    """Give an example that sets fields of the decode role's pod template."""
    return decode(template={"spec": fields})
