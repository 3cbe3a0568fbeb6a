"""Writing answers: deltas of the engine become OpenAI's JSON, whole or as server-sent events."""

import secrets
import time
from dataclasses import dataclass, field

import msgspec

from .api import Call, Kind
from .engine import Delta
from .handoff import TransferParams

DONE = b"data: [DONE]\n\n"
_OBJECTS: dict[Kind, tuple[str, str]] = {
    "completion": ("text_completion", "text_completion"),
    "chat": ("chat.completion", "chat.completion.chunk"),
}
_PREFIXES: dict[Kind, str] = {"completion": "cmpl-", "chat": "chatcmpl-"}


@dataclass(slots=True)
class Answer:
    """One answer in the making; `call` says which of the two shapes it has."""

    call: Call
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    id: str = ""
    begun: bool = False

    def __post_init__(self) -> None:
        self.id = _PREFIXES[self.call.kind] + secrets.token_hex(12)

    def whole(self, text: str, last: Delta, transfer: TransferParams | None) -> bytes:
        """Return the body of an answer that is not streamed."""
        if self.call.kind == "chat":
            content: dict[str, object] = {"message": {"role": "assistant", "content": text}}
        else:
            content = {"text": text}
        body = self._frame(0)
        body["choices"] = [{"index": 0, **content, "logprobs": None, "finish_reason": last.reason}]
        body["usage"] = self._usage(last)
        body["kv_transfer_params"] = transfer
        return msgspec.json.encode(body)

    def event(self, delta: Delta) -> bytes:
        """Return the event for new text; empty where there is none to tell."""
        if not delta.text and not delta.reason:
            return b""
        if self.call.kind == "chat":
            role = {} if self.begun else {"role": "assistant"}
            content: dict[str, object] = {"delta": {**role, "content": delta.text}}
        else:
            content = {"text": delta.text}
        self.begun = True
        body = self._frame(1)
        body["choices"] = [{"index": 0, **content, "logprobs": None, "finish_reason": delta.reason}]
        if self.call.include_usage:
            body["usage"] = None
        return _event(body)

    def ending(self, last: Delta) -> bytes:
        """Return what closes a stream: the usage where it was asked for, and the end mark."""
        if not self.call.include_usage:
            return DONE
        return _event(self._frame(1) | {"choices": [], "usage": self._usage(last)}) + DONE

    def _frame(self, chunk: int) -> dict[str, object]:
        return {"id": self.id, "object": _OBJECTS[self.call.kind][chunk], "created": self.created, "model": self.model}

    def _usage(self, last: Delta) -> dict[str, object]:
        prompt = len(self.call.prompt)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": last.generated,
            "total_tokens": prompt + last.generated,
            "prompt_tokens_details": {"cached_tokens": last.cached},
        }


def _event(body: object) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
