"""What the operator and the API server would refuse, without either: types, CEL rules of the CRD, and the operator's checks.

The API server refuses at admission what breaks a CEL rule, and the operator whatever else is wrong; both in the words that
they use in the cluster. Rules are evaluated by cel-python where it is installed (extra `cli`).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.service import InferenceService
from steelyard.decide import accept
from steelyard.decide.plan import read

TEXTS = ("name", "namespace", "uid", "generateName")  # of metadata
MAPS = ("labels", "annotations")


class Refused(ValueError):
    """What the operator or the API server would refuse too, in their words, one a line."""


def refused(
    body: Mapping[str, Any], known: Mapping[str, Accelerator | None]
) -> tuple[InferenceService | None, list[str]]:
    """Read a service and give every reason why it would be refused; none: it is served."""
    from steelyard.cli.admission import broken_rules  # cel-python takes a third of a second to load

    wrong = list(_wrong_metadata(body))
    if wrong:
        return None, wrong
    service, unreadable = read(body)
    if service is None:
        return None, [str(one) for one in unreadable]
    reasons = broken_rules(dict(body))
    reasons += [str(one) for one in accept.refusals(service, known)]
    return service, list(dict.fromkeys(reasons))


def _wrong_metadata(body: Mapping[str, Any]) -> Iterator[str]:
    """What the API server refuses of an object's metadata before it asks any rule: values that are no texts."""
    meta = body.get("metadata")
    if not isinstance(meta, Mapping):
        yield f"metadata: {_shown(meta)}: it must be an object with a name"
        return
    if "name" not in meta:
        yield "metadata.name: (absent): the object needs a name; write one"
    for field in TEXTS:
        value = meta.get(field, "")
        if not isinstance(value, str) and (field == "name" or value is not None):
            yield f"metadata.{field}: {_shown(value)}: it must be a text; write it in quotes"
    for field in MAPS:
        entries = meta.get(field) or {}
        if not isinstance(entries, Mapping):
            yield f"metadata.{field}: {_shown(entries)}: it must be an object of texts"
            continue
        for key, value in entries.items():
            if not isinstance(key, str) or not isinstance(value, str):
                yield f"metadata.{field}.{key}: {_shown(value)}: names and values must be texts; write them in quotes"


def _shown(value: object) -> str:
    """A value as JSON writes it, which is what YAML made of it."""
    return json.dumps(value, default=str)
