"""Token counts as engines report them in `usage`; partial and missing ones are tolerated, impossible ones not believed."""

from typing import Annotated

import msgspec

Tokens = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]  # counters only rise, and their sums stay exact


class PromptDetails(msgspec.Struct, frozen=True):
    """Where the prompt's tokens came from."""

    cached_tokens: Tokens | None = None


class Usage(msgspec.Struct, frozen=True):
    """OpenAI's usage."""

    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed anew."""
        details = self.prompt_tokens_details
        return (details.cached_tokens or 0) if details is not None else 0


class Reply(msgspec.Struct, frozen=True):
    """An engine's whole answer, as far as the gateway reads it."""

    usage: Usage | None = None
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")
    choices: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def complete(self) -> bool:
        """Whether it is an answer at all, with choices."""
        return bytes(self.choices)[:1] == b"["


class _UnreadUsage(msgspec.Struct, frozen=True):
    usage: msgspec.Raw = msgspec.Raw(b"null")
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")
    choices: msgspec.Raw = msgspec.Raw(b"null")


_decode_reply = msgspec.json.Decoder(Reply).decode
_decode_with_unread_usage = msgspec.json.Decoder(_UnreadUsage).decode
_decode_usage = msgspec.json.Decoder(Usage | None).decode


def read_reply(body: bytes) -> Reply:
    """Read what the gateway needs of an engine's answer; what cannot be read counts as left out."""
    try:
        return _decode_reply(body)
    except (msgspec.MsgspecError, RecursionError):
        return _read_without_usage(body)


def _read_without_usage(body: bytes) -> Reply:
    """Read an answer whose usage is impossible, most likely: the rest may be well."""
    try:
        answer = _decode_with_unread_usage(body)
    except (msgspec.MsgspecError, RecursionError):
        return Reply()
    return Reply(read_usage(answer.usage), answer.kv_transfer_params, answer.choices)


def read_usage(raw: msgspec.Raw) -> Usage | None:
    """Read a usage object; None where it is missing or impossible."""
    try:
        return _decode_usage(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
