"""The rules that one field alone cannot state, written in CEL and checked by the API server at admission.

One table, `RULES`, in five modules by subject. A rule belongs to a type and holds wherever that type occurs. Each has
an object that it accepts and one that it refuses: the tests run both offline, and on a real API server. The rules keep
to the part of CEL that every supported API server has (no optional chaining, no `cel.bind`); `split`, `quantity` and
`compareTo` come from Kubernetes.
"""

from steelyard.api.rules.goals import GOAL_RULES
from steelyard.api.rules.model import MODEL_RULES
from steelyard.api.rules.pods import POD_RULES
from steelyard.api.rules.rule import Rule, sample
from steelyard.api.rules.service import SERVICE_RULES
from steelyard.api.rules.tuning import TUNING_RULES

__all__ = ["RULES", "Rule", "sample"]

RULES: tuple[Rule, ...] = (*SERVICE_RULES, *MODEL_RULES, *TUNING_RULES, *POD_RULES, *GOAL_RULES)
