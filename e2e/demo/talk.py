"""A client as a user would write one: a streamed chat answer over HTTP, with the time of its first token."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Answer:
    """A completion: its text, tokens in the prompt and in the answer, seconds to the first text and to the end."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    first_token_seconds: float
    seconds: float


def stream_chat(base: str, model: str, question: str, max_tokens: int) -> Answer:
    """The greedy answer to `question`, streamed; raises httpx.HTTPStatusError with the server's message when refused."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = time.monotonic()
    first: float | None = None
    text, usage = "", {"prompt_tokens": 0, "completion_tokens": 0}
    with httpx.stream("POST", f"{base}/v1/chat/completions", json=body, timeout=120) as reply:
        if reply.is_error:
            reply.read()
            raise httpx.HTTPStatusError(f"{reply.status_code}: {reply.text}", request=reply.request, response=reply)
        for event in events(reply):
            usage = event.get("usage") or usage
            for choice in event.get("choices", []):
                if piece := choice.get("delta", {}).get("content"):
                    first = first or time.monotonic()
                    text += piece
    done = time.monotonic()
    return Answer(text, usage["prompt_tokens"], usage["completion_tokens"], (first or done) - started, done - started)


def events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON of each server-sent event up to `[DONE]`; raises ValueError on an error event or when the end is missing."""
    for line in reply.iter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise ValueError(f"the stream ended in an error: {event['error']}")
        yield event
    raise ValueError("the stream ended without [DONE]")
