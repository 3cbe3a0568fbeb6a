"""Rules on traffic, objectives and the bounds of autoscaling."""

from steelyard.api.goals import Objectives, RatioBounds
from steelyard.api.rules.rule import Rule, spec
from steelyard.api.traffic import Limits, Routing

_TRAFFIC = (
    Rule(
        name="request-timeout-positive",
        on=Routing,
        cel="string(self.requestTimeout).matches('[1-9]')",
        message="requestTimeout must be greater than zero",
        accept=spec(routing={"requestTimeout": 30}),
        reject=spec(routing={"requestTimeout": "0s"}),
        field="requestTimeout",
    ),
    Rule(
        name="body-limit-positive",
        on=Limits,
        cel="string(self.bodyBytes).matches('^[0-9.]*[1-9]')",
        message="limits.bodyBytes must be greater than zero",
        accept=spec(routing={"limits": {"bodyBytes": "64Ki"}}),
        reject=spec(routing={"limits": {"bodyBytes": "0Mi"}}),
        field="bodyBytes",
    ),
)

_LATENCIES = ("timeToFirstToken", "timePerOutputToken")

_GOALS = (
    *(
        Rule(
            name=f"{field}-is-a-latency",
            on=Objectives,
            cel=f"!has(self.{field}) || (string(self.{field}).matches('[1-9]')"
            f" && !string(self.{field}).matches('[0-9](m([0-9]|$)|h)'))",
            message=f"{field} must be greater than zero and written in seconds or smaller units, such as 500ms or 1.5s"
            " (m means minutes)",
            accept=spec(objectives={field: "500ms"}),
            reject=spec(objectives={field: "500m"}),
            field=field,
        )
        for field in _LATENCIES
    ),
    Rule(
        name="attainment-is-a-percentage",
        on=Objectives,
        cel="!has(self.attainment) || double(self.attainment) >= 1.0",
        message="objectives.attainment is a percentage of at least 1; write 95 for 95 %",
        accept=spec(objectives={"attainment": 99.5}),
        reject=spec(objectives={"attainment": 0.95}),
        field="attainment",
    ),
    Rule(
        name="window-positive",
        on=Objectives,
        cel="string(self.window).matches('[1-9]')",
        message="objectives.window must be greater than zero",
        accept=spec(objectives={"window": 60}),
        reject=spec(objectives={"window": 0}),
        field="window",
    ),
    Rule(
        name="ratio-ordered",
        on=RatioBounds,
        cel="!has(self.min) || !has(self.max) || int(self.min.split(':')[0]) * int(self.max.split(':')[1])"
        " <= int(self.max.split(':')[0]) * int(self.min.split(':')[1])",
        message="ratio.min is greater than ratio.max; both are prefill:decode, so 1:8 is less than 4:1",
        accept=spec(autoscaling={"ratio": {"min": "1:8", "max": "4:1"}}),
        reject=spec(autoscaling={"ratio": {"min": "4:1", "max": "1:8"}}),
        field="max",
    ),
)

GOAL_RULES = (*_TRAFFIC, *_GOALS)
