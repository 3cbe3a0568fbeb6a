"""Durations and quantities as Kubernetes writes them: text that keeps its spelling and knows its value.

`Duration("1.5s").seconds == 1.5`, `Quantity("4Mi").value == 4194304`, `Share("25%").plain == "25%"`.
All are strings, so a manifest that is read
and written again does not change. A bare number is a count of seconds for a duration and a plain number for a
quantity, with or without quotation marks.
"""

import re
from decimal import Decimal
from math import ceil
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_SECONDS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_SCALES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
_LONGEST = 32
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER})(ns|us|µs|ms|s|m|h)")
_QUANTITY = re.compile(rf"({_NUMBER})(?:([eE][+-]?[0-9]{{1,2}})|([numkMGTPE]|[KMGTPE]i)?)")


class _Text(str):
    """A string that was checked when it was made; a whole number is taken as its spelling, as the API server takes it."""

    pattern: ClassVar[str]
    form: ClassVar[str]
    __slots__ = ()

    def __new__(cls, text: "str | int") -> Self:
        spelling = str(text) if isinstance(text, int) and not isinstance(text, bool) else text
        if not isinstance(spelling, str) or len(spelling) > _LONGEST or not re.fullmatch(cls.pattern, spelling):
            raise ValueError(f"{text!r} is not {cls.form}")
        return super().__new__(cls, spelling)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(str, return_schema=None)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": f"^({cls.pattern})$",
            "maxLength": _LONGEST,
            "minimum": 0,
        }


class Duration(_Text):
    """A span of time: one or more of number and unit (`500ms`, `1.5s`, `1h30m`), or a bare number of seconds."""

    pattern = rf"({_NUMBER}(ns|us|µs|ms|s|m|h))+|{_NUMBER}"
    form = "a duration; write a number with a unit, such as 500ms, 1.5s or 5m, or a whole number of seconds"
    __slots__ = ()

    @property
    def seconds(self) -> float:
        """The span in seconds."""
        parts = _PART.findall(self)
        return float(sum((Decimal(n) * _SECONDS[unit] for n, unit in parts), Decimal(0)) if parts else Decimal(self))


class Quantity(_Text):
    """An amount: a number with an optional scale, decimal (`500m`, `2k`, `4G`, `1e3`) or binary (`4Mi`, `30Gi`)."""

    pattern = rf"{_NUMBER}([eE][+-]?[0-9]{{1,2}}|[numkMGTPE]|[KMGTPE]i)?"
    form = "a quantity; write a number with an optional scale, such as 8, 500m, 4Mi or 30Gi"
    __slots__ = ()

    @property
    def value(self) -> Decimal:
        """The exact amount in units (cores, bytes, devices)."""
        match = _QUANTITY.fullmatch(self)
        if match is None:  # the constructor has matched the same grammar
            raise AssertionError(f"{self!r} passed the check but does not parse")
        number, exponent, scale = match.groups()
        return Decimal(number + exponent) if exponent else Decimal(number) * _SCALES[scale or ""]

    @property
    def whole(self) -> int:
        """The amount in whole units, rounded up as Kubernetes does."""
        return ceil(self.value)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded up: millicores for processor time."""
        return ceil(self.value * 1000)


class Share(_Text):
    """A number of replicas, or a percentage of them: `2`, `25%`."""

    pattern = r"(100|[1-9]?[0-9])%|[0-9]+"
    form = "a number of replicas or a percentage of them; write such as 1 or 25%"
    __slots__ = ()

    @property
    def plain(self) -> int | str:
        """The form that Kubernetes' own objects take: a number is an integer, a percentage is text."""
        return str(self) if self.endswith("%") else int(self)
