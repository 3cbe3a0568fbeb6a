"""Reading requests: OpenAI's two bodies become one checked `Call`, or an `ApiError` that names field, value and remedy.

A field that would change the answer and is not implemented is refused unless it has its neutral value: ignoring it
would be a wrong answer that looks right. Fields nobody knows are ignored, as OpenAI's servers do.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from .backends import Backend
from .chat import render
from .errors import ApiError
from .handoff import TransferParams
from .sampling import Sampling
from .structure import read_form

Kind = Literal["completion", "chat"]
_COMPLETION_DEFAULT = 16  # tokens of a completion without a limit, as OpenAI has it
_MAX_STOPS = 16

# Field → values that change nothing, and what to do instead of the others.
_UNSUPPORTED: dict[str, tuple[tuple[object, ...], str]] = {
    "n": ((1,), "send one request for each choice"),
    "best_of": ((1,), "send one request for each candidate and choose"),
    "echo": ((False,), "prepend the prompt yourself"),
    "suffix": (("",), "leave it out; this engine completes to the right only"),
    "logprobs": ((False,), "leave it out; this engine gives no log-probabilities"),
    "top_logprobs": ((0,), "leave it out; this engine gives no log-probabilities"),
    "prompt_logprobs": ((), "leave it out; this engine gives no log-probabilities"),
    "logit_bias": (({},), "leave it out"),
    "presence_penalty": ((0,), "leave it out or send 0"),
    "frequency_penalty": ((0,), "leave it out or send 0"),
    "repetition_penalty": ((1,), "leave it out or send 1"),
    "top_k": ((0, -1), "use top_p"),
    "min_p": ((0,), "use top_p"),
    "use_beam_search": ((False,), "leave it out"),
    "stop_token_ids": (([],), "use stop"),
    "tools": (([],), "describe the tools in the prompt"),
    "tool_choice": (("none", "auto"), "leave it out"),
    "functions": (([],), "describe the functions in the prompt"),
    "continue_final_message": ((False,), "use /v1/completions with a prompt of your own"),
}


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Common(msgspec.Struct, kw_only=True):
    model: str | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    kv_transfer_params: TransferParams | None = None


class _CompletionBody(_Common, kw_only=True):
    prompt: str | list[str | int]


class _TextPart(msgspec.Struct, tag="text", tag_field="type"):
    text: str


class _Message(msgspec.Struct):
    role: str
    content: str | list[_TextPart]


class _ChatBody(_Common, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]


_B = TypeVar("_B", _CompletionBody, _ChatBody)


@dataclass(frozen=True, slots=True)
class Call:
    """A request as the engine serves it."""

    kind: Kind
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stops: tuple[str, ...]
    ignore_eos: bool
    stream: bool
    include_usage: bool
    transfer: TransferParams
    adapter: str = ""


def read_call(kind: Kind, data: bytes, served: tuple[str, ...], context_length: int, backend: Backend) -> Call:
    """Check a body and tokenize its prompt; raise ApiError. `served` are names: the model's, then its adapters'."""
    fields = _read_object(data)
    for field, (neutral, remedy) in _UNSUPPORTED.items():
        value = fields.get(field)
        if value is not None and not any(_same(value, one) for one in neutral):
            raise ApiError(400, f"{field}={_short(value)} is not supported: {remedy}.", field, "unsupported_value")
    body: _CompletionBody | _ChatBody
    body = _convert(fields, _CompletionBody) if kind == "completion" else _convert(fields, _ChatBody)
    if body.model is not None and body.model not in served:
        raise ApiError(
            404,
            f"The model {_short(body.model)} is not served here; ask for {' or '.join(map(repr, served))}.",
            "model",
            "model_not_found",
        )
    prompt = _complete(body, backend) if isinstance(body, _CompletionBody) else _chat(body, backend)
    return Call(
        kind=kind,
        prompt=prompt,
        max_tokens=_answer_limit(body, len(prompt), context_length, backend.default_answer),
        sampling=_sampling(body, _grammar(fields, backend)),
        stops=_stops(body),
        ignore_eos=bool(body.ignore_eos),
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        transfer=_transfer(body),
        adapter="" if body.model in (None, served[0]) else str(body.model),
    )


def _read_object(data: bytes) -> Mapping[str, Any]:
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(400, f"The body is not JSON: {error}.", None, "invalid_json") from error
    if not isinstance(fields, dict):
        raise ApiError(400, "The body must be a JSON object.", None, "invalid_json")
    return fields


def _convert(fields: Mapping[str, Any], body: type[_B]) -> _B:
    try:
        return msgspec.convert(fields, body)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        param = path.rstrip("`").split("[")[0].split(".")[0] or None
        if param is None and "required field" in problem:
            param = problem.split("`")[1]
        raise ApiError(400, f"{param or 'The body'}: {problem}.", param, "invalid_value") from error


def _complete(body: _CompletionBody, backend: Backend) -> tuple[int, ...]:
    """Return the tokens of a completion's prompt: a string, a list of one string, or token ids."""
    prompt = body.prompt
    if isinstance(prompt, list):
        ids = [item for item in prompt if isinstance(item, int)]
        texts = [item for item in prompt if isinstance(item, str)]
        if len(ids) == len(prompt):
            return _token_ids(ids, backend)
        if len(prompt) != 1 or len(texts) != 1:
            raise ApiError(400, f"prompt: {len(prompt)} prompts in one request; send one request for each.", "prompt")
        prompt = texts[0]
    tokens = backend.tokenize(prompt, True)
    if not tokens:
        raise ApiError(400, "prompt: it is empty; send at least one token.", "prompt")
    return tuple(tokens)


def _token_ids(ids: list[int], backend: Backend) -> tuple[int, ...]:
    if not ids:
        raise ApiError(400, "prompt: it is empty; send at least one token.", "prompt")
    wrong = next((token for token in ids if not 0 <= token < backend.vocabulary), None)
    if wrong is not None:
        raise ApiError(400, f"prompt: token id {wrong} is not in 0..{backend.vocabulary - 1}.", "prompt")
    return tuple(ids)


def _chat(body: _ChatBody, backend: Backend) -> tuple[int, ...]:
    messages = [
        {"role": message.role, "content": message.content}
        if isinstance(message.content, str)
        else {"role": message.role, "content": "\n".join(part.text for part in message.content)}
        for message in body.messages
    ]
    try:
        text = render(backend.chat_template, messages, backend.special)
    except ValueError as error:
        raise ApiError(400, f"messages: {error}; change roles or order.", "messages", "invalid_value") from error
    return tuple(backend.tokenize(text, False))


def _answer_limit(body: _CompletionBody | _ChatBody, prompt: int, context: int, default: int | None) -> int:
    """Return how many tokens the answer may have; what is asked for must fit the context."""
    rest = context - prompt
    asked = body.max_completion_tokens or body.max_tokens
    if rest < 1 or (asked is not None and asked > rest):
        raise ApiError(
            400,
            f"The context holds {context} tokens; the prompt has {prompt} and the answer may have {asked or 1}: "
            "shorten the prompt or lower max_tokens.",
            "max_tokens" if rest >= 1 else "prompt" if isinstance(body, _CompletionBody) else "messages",
            "context_length_exceeded",
        )
    if asked is not None:
        return asked
    if isinstance(body, _CompletionBody):
        return min(rest, _COMPLETION_DEFAULT)
    return rest if default is None else min(rest, default)


def _grammar(fields: Mapping[str, Any], backend: Backend) -> str | None:
    """Return the grammar of the form that the answer is to have."""
    form = read_form(fields)
    if form is None:
        return None
    try:
        return backend.grammar(form)
    except ValueError as error:
        field = "response_format" if fields.get("response_format") else "structured_outputs"
        raise ApiError(400, f"{field}: {error}.", field, "unsupported_value") from error


def _sampling(body: _Common, grammar: str | None) -> Sampling:
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=secrets.randbits(63) if body.seed is None else body.seed,
        min_tokens=body.min_tokens or 0,
        grammar=grammar,
    )


def _stops(body: _Common) -> tuple[str, ...]:
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if len(stops) > _MAX_STOPS or "" in stops:
        raise ApiError(400, f"stop: send 1 to {_MAX_STOPS} strings, none of them empty.", "stop", "invalid_value")
    return stops


def _transfer(body: _Common) -> TransferParams:
    transfer = body.kv_transfer_params or TransferParams()
    if transfer.do_remote_decode and body.stream:
        raise ApiError(400, "stream: the prefill call of a hand-off cannot stream; send stream=false.", "stream")
    return transfer


def _short(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else text[:37] + "…"


def _same(value: object, other: object) -> bool:
    """Compare JSON values; unlike Python, 0 is not false."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
