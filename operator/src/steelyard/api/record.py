"""The base of every type of our API: immutable, strict, snake_case in Python and camelCase on the wire.

An unknown field is an error here as it is for `kubectl`, so that a misspelt setting never passes in silence. A field's
docstring is its description in the CRD and in the reference page, so it gives units, defaults and meaning.
"""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_core import to_json


class Record(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def read(cls, body: object) -> Self:
        """Build the type from plain data as the API server stores it; raises pydantic's `ValidationError`.

        As strict as the API server: "8" is no integer and "yes" no truth value. Times, which YAML readers give, are texts.
        """
        return cls.model_validate_json(to_json(body), strict=True)

    def manifest(self) -> dict[str, Any]:
        """Give plain data for the API server: camelCase names, unset optional fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Free(Record):
    """An object whose fields are Kubernetes' own; it is passed on unread."""

    model_config = ConfigDict(extra="allow")
