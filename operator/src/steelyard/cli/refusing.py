"""What the operator and the API server would refuse, without either: types, CEL rules of the CRD, and the operator's checks.

The API server refuses at admission what breaks a CEL rule, and the operator whatever else is wrong; both in the words that
they use in the cluster. Rules are evaluated by cel-python where it is installed (extra `cli`).
"""

from collections.abc import Mapping
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.service import InferenceService
from steelyard.decide import accept
from steelyard.decide.plan import read


class Refused(ValueError):
    """What the operator or the API server would refuse too, in their words, one a line."""


def refused(
    body: Mapping[str, Any], known: Mapping[str, Accelerator | None]
) -> tuple[InferenceService | None, list[str]]:
    """Read a service and give every reason why it would be refused; none: it is served."""
    from steelyard.cli.admission import broken_rules  # cel-python takes a third of a second to load

    service, unreadable = read(body)
    if service is None:
        return None, [str(one) for one in unreadable]
    reasons = broken_rules(dict(body))
    reasons += [str(one) for one in accept.refusals(service, known)]
    return service, list(dict.fromkeys(reasons))
