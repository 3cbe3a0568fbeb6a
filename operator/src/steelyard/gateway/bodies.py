"""Request bodies: what is read from a client's, and the two that are made of it.

A body is a dictionary of raw JSON values: only the fields the gateway must know are decoded, all others pass untouched,
known to it or not. One function builds the prefill body, for every path, so that the prefill leg can never generate the
whole answer.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from steelyard.gateway.errors import ClientError

Raw = msgspec.Raw
T = TypeVar("T")
Kind = tuple[Callable[[Raw], T | None], str]  # of a field: how it is read, and what it must be

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode

_REMOTE_DECODE = Raw(b'{"do_remote_decode":true,"do_remote_prefill":false}')
_ONE = Raw(b"1")
_FALSE = Raw(b"false")

CHAT = b"/v1/chat/completions"
COMPLETIONS = b"/v1/completions"
_PROMPT_FIELD = {CHAT: "messages", COMPLETIONS: "prompt"}

# How engines address each other for a hand-off. From a client they would make an engine fetch from an address of the
# client's choice.
_GATEWAY_ONLY = frozenset(
    ("kv_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "disagg_prefill_resp")
)
# What would make the prefill leg generate more than its one token, or answer in a form that carries no hand-off.
_NOT_FOR_PREFILL = ("stream_options", "min_tokens", "n", "best_of", "use_beam_search")

_IDS = re.compile(rb"\[\s*\d")  # how a prompt of token ids begins


class StreamOptions(msgspec.Struct, frozen=True):
    """OpenAI's options of a stream, as far as the gateway answers for them."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ClientBody(msgspec.Struct, frozen=True):
    """A client's request: its raw fields, and those the gateway acts on."""

    fields: dict[str, Raw]
    model: str
    prompt: bytes  # raw JSON of the prompt or the messages
    stream: bool
    wants_usage: bool
    wants_running_usage: bool
    choices: int  # answers asked for, at least 1
    prompt_token_ids: int | None  # how many ids the prompt is, if it is a plain list of ids; None for text

    def without_content(self) -> "ClientBody":
        """Return what is still of use once the answer has begun."""
        return msgspec.structs.replace(self, fields={}, prompt=b"")


def read_body(path: bytes, body: bytes) -> ClientBody:
    """Read a client's JSON body. Raises ClientError (400) naming the field and what it must be."""
    try:
        fields = _decode_fields(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ClientError(400, f"the body is not a JSON object: {_brief(error)}") from None
    if not _GATEWAY_ONLY.isdisjoint(fields):
        name = next(name for name in fields if name in _GATEWAY_ONLY)
        raise ClientError(400, f"{name!r} is set by the gateway, not by clients: leave it out", param=name)
    model = _field(fields, "model", _STRING)
    if model is None:
        raise ClientError(400, "'model' is missing: name the model to use, see /v1/models", param="model")
    prompt_field = _PROMPT_FIELD[path]
    prompt = bytes(fields.get(prompt_field, b""))
    if prompt == b"" or prompt == b"null":
        raise ClientError(400, f"{prompt_field!r} is missing", param=prompt_field)
    options = _field(fields, "stream_options", _OPTIONS) or _NO_OPTIONS
    return ClientBody(
        fields=fields,
        model=model,
        prompt=prompt,
        stream=bool(_field(fields, "stream", _BOOLEAN)),
        wants_usage=bool(options.include_usage),
        wants_running_usage=bool(options.include_usage and options.continuous_usage_stats),
        choices=max(1, _field(fields, "n", _WHOLE) or 1),
        prompt_token_ids=prompt.count(b",") + 1 if _IDS.match(prompt) else None,
    )


def prefill_body(body: ClientBody) -> bytes:
    """Build the prefill leg's body: one token, not streamed, its KV kept for another engine. All limits that a client
    can name are covered whatever the path."""
    fields = dict(body.fields)
    for name in _NOT_FOR_PREFILL:
        fields.pop(name, None)
    fields["max_tokens"] = _ONE
    if "max_completion_tokens" in fields:
        fields["max_completion_tokens"] = _ONE
    fields["stream"] = _FALSE
    fields["kv_transfer_params"] = _REMOTE_DECODE
    return _encode(fields)


def decode_body(body: ClientBody, kv_transfer_params: Raw | None) -> bytes:
    """Build the body of the leg that answers: the client's own fields, the hand-off if there is one, and a request for
    usage where a stream would not carry it."""
    fields = dict(body.fields)
    if body.stream and not body.wants_usage:
        options = _options_fields(fields.get("stream_options"))
        options["include_usage"] = Raw(b"true")
        fields["stream_options"] = Raw(_encode(options))
    if kv_transfer_params is not None:
        fields["kv_transfer_params"] = kv_transfer_params
    return _encode(fields)


def _options_fields(raw: Raw | None) -> dict[str, Raw]:
    return {} if raw is None or bytes(raw) == b"null" else _decode_fields(raw)


_STRING: Kind[str] = msgspec.json.Decoder(str | None).decode, "a string"
_BOOLEAN: Kind[bool] = msgspec.json.Decoder(bool | None).decode, "true or false"
_WHOLE: Kind[int] = msgspec.json.Decoder(int | None).decode, "a whole number"
_OPTIONS: Kind[StreamOptions] = msgspec.json.Decoder(StreamOptions | None).decode, "an object"
_NO_OPTIONS = StreamOptions()


def _field(fields: dict[str, Raw], name: str, kind: Kind[T]) -> T | None:
    raw = fields.get(name)
    if raw is None:
        return None
    decode, words = kind
    try:
        return decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        raise ClientError(400, f"{name!r} must be {words}", param=name) from None


def _brief(error: Exception) -> str:
    # A decoder's message holds positions and types, never content; keep it so by its first line only.
    return str(error).splitlines()[0] if str(error) else type(error).__name__
