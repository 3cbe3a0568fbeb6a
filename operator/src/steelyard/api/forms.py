"""Forms of texts that a regular expression checks and a sentence explains.

A pattern in the CRD's schema would be all that the API server answers, hundreds of characters of it. So that schema has none for
these: a CEL rule refuses with the sentence there, and the type does so here.
"""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

WORDS = "x-words"  # in a JSON schema: the pattern beside it is a form's, which the CRD says in a rule


@dataclass(frozen=True)
class Form:
    """Annotates a text. `pattern` matches all of it, in the dialect that Python and RE2 share and without quotes; `words` tell
    how to write one."""

    pattern: str
    words: str

    def cel(self, field: str, optional: bool = False) -> str:
        """Write the same check as a rule on the type that has the field."""
        matches = f"self.{field}.matches('^({self.pattern})$')"
        return f"!has(self.{field}) || {matches}" if optional else matches

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^({self.pattern})$", WORDS: self.words}

    def _checked(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(self.words)
        return text
