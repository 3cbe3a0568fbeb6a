"""One streamed answer, read as server-sent events. Pure: bytes and times go in."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from e2e.load.records import Kind

MAX_DETAIL = 200  # characters of a server's message that are kept
_MAX_LINE = 1 << 20


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Event(msgspec.Struct):
    id: str | None = None
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Event).decode


class AnswerError(Exception):
    """The answer is wrong; `kind` says how, the message in which way."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail[:MAX_DETAIL])
        self.kind = kind


class Answer:
    """Counts and times of the events that have arrived. Times are those of the read that completed the event."""

    __slots__ = (
        "_begun",
        "_finished",
        "_tail",
        "_text",
        "done",
        "events",
        "first_token",
        "id",
        "last_token",
        "longest_gap",
        "max_tokens",
        "prompt_tokens",
        "usage_tokens",
    )

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.longest_gap: float | None = None
        self.events = 0
        self.usage_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.id: str | None = None
        self.done = False
        self._begun = self._finished = False
        self._tail = b""
        self._text = blake2b(digest_size=8)

    @property
    def digest(self) -> str | None:
        """A digest of the text so far, None where there is none: equal answers have equal ones, and no answer is kept."""
        return self._text.hexdigest() if self.events else None

    @property
    def tokens(self) -> int:
        """Tokens by the server's usage; without it by events, of which one may carry several tokens."""
        return self.events if self.usage_tokens is None else self.usage_tokens

    def feed(self, data: bytes, now: float) -> None:
        """Take the next bytes of the body, read at `now`; raises AnswerError."""
        lines = (self._tail + data).split(b"\n")
        self._tail = lines.pop()
        if len(self._tail) > _MAX_LINE:
            raise AnswerError(Kind.NOT_A_STREAM, f"a line of more than {_MAX_LINE} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                self._begun = True
                self._take(line[5:].strip(), now)

    def end(self) -> None:
        """The body is complete; raises AnswerError when the answer is not."""
        if not self._begun:
            raise AnswerError(Kind.NOT_A_STREAM, "the answer holds no events")
        if not self.done:
            raise AnswerError(Kind.CUT, "the stream ended without [DONE]")

    def _take(self, data: bytes, now: float) -> None:
        if self.done:
            raise AnswerError(Kind.DUPLICATED, "an event after [DONE]")
        if data == b"[DONE]":
            self.done = True
            return
        try:
            event = _decode(data)
        except msgspec.DecodeError as error:
            raise AnswerError(Kind.NOT_A_STREAM, f"an event is not the API's JSON: {error}") from None
        if bytes(event.error) != b"null":
            raise AnswerError(Kind.ERROR_EVENT, bytes(event.error).decode(errors="replace"))
        if event.id is not None:
            if self.id is not None and event.id != self.id:
                raise AnswerError(Kind.DUPLICATED, "events of two answers in one stream")
            self.id = event.id
        for choice in event.choices:
            self._choice(choice, now)
        if event.usage is not None:
            self._usage(event.usage)
        if self.tokens > self.max_tokens:
            raise AnswerError(Kind.DUPLICATED, f"{self.tokens} tokens, {self.max_tokens} were asked for")

    def _choice(self, choice: _Choice, now: float) -> None:
        delta = choice.delta
        text = choice.text if delta is None else delta.content or delta.reasoning_content
        if text:
            if self._finished:
                raise AnswerError(Kind.DUPLICATED, "text after the answer's finish")
            self.events += 1
            self._text.update(text.encode())
            if self.last_token is not None:
                self.longest_gap = max(self.longest_gap or 0.0, now - self.last_token)
            self.last_token = now
            if self.first_token is None:
                self.first_token = now
        if choice.finish_reason is not None:
            if self._finished:
                raise AnswerError(Kind.DUPLICATED, "a second finish")
            self._finished = True
            if self.first_token is None:  # an answer without text: its one token is the end token
                self.first_token = self.last_token = now

    def _usage(self, usage: _Usage) -> None:
        if usage.completion_tokens is not None:
            self.usage_tokens = usage.completion_tokens
        if usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens
