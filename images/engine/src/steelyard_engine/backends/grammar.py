"""Answers of a given form: JSON by a schema, text by a regular expression, or one of several texts, kept by llguidance.

A grammar forbids; it does not choose: sampling takes the best of what is left (`sampling.py`). It is kept for one answer and
told of each token of it, so it goes along with preemption and with guesses, of which only right ones become tokens. The
decode engine of a hand-off samples the first token anew, hence begins with the grammar at its start.

Schemas are the client's; llguidance bounds what they may cost, and says so instead of failing.
"""

import json
from collections.abc import Collection

import llama_cpp
import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.llamacpp import lltokenizer_from_vocab
from numpy.typing import NDArray

from ..structure import Choice, Form, Pattern

# Of the library's own limits a part: a step of one client's grammar holds up everybody's. Errors tell nothing of the answer.
_LIMITS = LLParserLimits(
    initial_lexer_fuel=50_000,
    step_lexer_fuel=40_000,
    step_max_items=20_000,
    max_lexer_states=20_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)


class Grammars:
    """What all grammars of a model share: its vocabulary, laid out for them (some 0.2 s, done when first needed)."""

    def __init__(self, vocab: "llama_cpp.llama_vocab_p", end_tokens: Collection[int]) -> None:
        self._vocab = vocab
        self._end_tokens = sorted(end_tokens)
        self._made: LLTokenizer | None = None

    def write(self, form: Form) -> str:
        """Write a form as a grammar that can be followed; raise ValueError where there is none."""
        if isinstance(form, Choice):
            grammar = LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, form.texts)))
        elif isinstance(form, Pattern):
            grammar = LLMatcher.grammar_from_regex(form.regex)
        else:
            grammar = LLMatcher.grammar_from_json_schema(dict(form.schema))
        problem = LLMatcher.validate_grammar(grammar, self._tokenizer(), limits=_LIMITS)
        if not problem:
            trial = LLMatcher(self._tokenizer(), grammar, log_level=0, limits=_LIMITS)
            trial.compute_bitmask()
            problem = trial.get_error() if trial.is_error() else ""
        if problem:
            raise ValueError(f"this form cannot be followed ({problem.splitlines()[0][:200]})")
        return str(grammar)

    def begin(self, grammar: str) -> "Grammar":
        """Begin an answer in this form."""
        return Grammar(LLMatcher(self._tokenizer(), grammar, log_level=0, limits=_LIMITS), self._end_tokens)

    def _tokenizer(self) -> LLTokenizer:
        if self._made is None:
            self._made = lltokenizer_from_vocab(self._vocab, eos_token=self._end_tokens)
        return self._made


class Grammar:
    """The state of one answer. Where nothing may follow, its end may."""

    def __init__(self, matcher: LLMatcher, end_tokens: list[int]) -> None:
        self._matcher = matcher
        self._end_tokens = end_tokens

    def allowed(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits (vocabulary,) with −inf where the grammar forbids a token."""
        mask = np.zeros(len(logits), bool)
        if self._matcher.is_stopped():
            mask[self._end_tokens] = True
        else:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            mask[:] = np.unpackbits(bits, bitorder="little")[: len(logits)]
        return np.where(mask, logits, -np.inf).astype(np.float32)

    def allows(self, token: int) -> bool:
        """Say whether the grammar allows this token now."""
        if self._matcher.is_stopped():
            return token in self._end_tokens
        return bool(self._matcher.validate_tokens([token]))

    def accept(self, token: int) -> None:
        """Go on by a token that is allowed."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
