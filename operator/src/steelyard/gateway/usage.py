"""Token counts as engines report them in `usage`; partial and missing ones are tolerated."""

import msgspec


class PromptDetails(msgspec.Struct, frozen=True):
    """Where the prompt's tokens came from."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """OpenAI's usage."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
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


_decode_reply = msgspec.json.Decoder(Reply).decode


def read_reply(body: bytes) -> Reply:
    """Read what the gateway needs of an engine's answer; an answer in another shape reads as one without usage."""
    try:
        return _decode_reply(body)
    except (msgspec.MsgspecError, RecursionError):
        return Reply()
