"""Speculative decoding: cheap guesses at the next tokens, checked by the model in one step."""

from typing import Annotated, Literal

from pydantic import Field

from steelyard.api.record import Record

SpeculationMethod = Literal["none", "ngram", "draft", "eagle3", "mtp"]


class Speculation(Record):
    """Cheap guesses at the next tokens, checked by the model in one step. Answers keep their distribution; the time per
    output token falls where guesses are good and batches small, and rises where they are not."""

    method: SpeculationMethod = "none"
    """none: one token a step. ngram: guesses are copied from the prompt. draft: a small model of the same vocabulary
    guesses. eagle3: a head trained on the model's own states guesses. mtp: the model's own extra layers guess. Default
    none."""
    tokens: Annotated[int, Field(ge=1, le=32)] | None = None
    """Tokens guessed a step. Default 3."""
    model: (
        Annotated[
            str,
            Field(
                min_length=3,
                max_length=512,
                pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*|/[^\s]+)$",
            ),
        ]
        | None
    ) = None
    """The guessing model, needed with draft and eagle3: OWNER/NAME on the model hub, or an absolute path in the engine's
    container, where a volume of the role's template puts it."""
    prompt_lookup: Annotated[int, Field(ge=1, le=32)] | None = None
    """Longest run of tokens that ngram looks for in the prompt; only there. Default 4."""

    @property
    def guesses(self) -> int:
        """The effective number of tokens guessed a step."""
        return self.tokens or 3

    @property
    def lookup(self) -> int:
        """The effective longest run that ngram looks for."""
        return self.prompt_lookup or 4
