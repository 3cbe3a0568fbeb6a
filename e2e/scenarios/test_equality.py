"""A greedy answer does not depend on whether prefill and decode ran in one pod or in two."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from e2e.demo.talk import events
from e2e.platform import Served

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

LONG = "Count slowly and say something about each number. " * 12
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": ("completions", {"prompt": "The capital of France is", "max_tokens": 24}),
    "long prompt": ("completions", {"prompt": LONG, "max_tokens": 32}),
    "one token": ("completions", {"prompt": "Two plus two is", "max_tokens": 1}),
    "stop string": ("completions", {"prompt": "A list of fruits: apple,", "max_tokens": 40, "stop": ["\n", " and"]}),
    "chat": ("chat/completions", {"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 40}),
    "chat, several turns": (
        "chat/completions",
        {
            "messages": [
                {"role": "system", "content": "You answer briefly."},
                {"role": "user", "content": "Name a colour."},
                {"role": "assistant", "content": "Blue."},
                {"role": "user", "content": "Another one, in a sentence, with an emoji."},
            ],
            "max_completion_tokens": 40,
        },
    ),
}


def ask(served: Served, path: str, body: dict[str, Any], stream: bool) -> tuple[str, str, dict[str, int]]:
    """Text, finish reason and usage of one greedy answer."""
    body = {"model": "smollm2", "temperature": 0, **body}
    if not stream:
        reply = httpx.post(f"{served.url}/v1/{path}", json=body, timeout=120)
        assert reply.status_code == 200, reply.text
        answer = reply.json()
        choice = answer["choices"][0]
        return (
            choice.get("text") or choice.get("message", {}).get("content") or "",
            choice["finish_reason"],
            answer["usage"],
        )
    text, reason = "", ""
    usage: dict[str, int] = {}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    with httpx.stream("POST", f"{served.url}/v1/{path}", json=body, timeout=120) as reply:
        for event in events(reply):
            usage = event.get("usage") or usage
            for choice in event.get("choices", []):
                text += choice.get("text") or choice.get("delta", {}).get("content") or ""
                reason = choice.get("finish_reason") or reason
    return text, reason, usage


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_the_same_by_one_pod_and_by_two(name: str, disaggregated: Served, whole: Served) -> None:
    path, body = CASES[name]
    answers = [ask(served, path, body, stream) for served in (disaggregated, whole) for stream in (True, False)]
    texts = {text for text, _, _ in answers}
    assert len(texts) == 1, answers
    assert len({reason for _, reason, _ in answers}) == 1, answers
    assert len({(usage["prompt_tokens"], usage["completion_tokens"]) for _, _, usage in answers}) == 1, answers
    assert texts != {""}


def test_an_unknown_model_is_refused_with_its_name(disaggregated: Served) -> None:
    reply = httpx.post(f"{disaggregated.url}/v1/completions", json={"model": "gpt-0", "prompt": "hi"}, timeout=30)
    assert reply.status_code == 404
    assert "gpt-0" in reply.json()["error"]["message"]
