"""The event filter: whole events out, usage as the client asked for it, however the bytes are cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.gateway import events as events_module
from steelyard.gateway.events import BrokenStreamError, EventStream

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def event(data: Any, newline: str = "\n") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return f"data: {text}{newline}{newline}".encode()


def token(text: str, **more: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "text": text}], **more}


def run(parts: list[bytes], *, wants: bool = False, running: bool = False) -> tuple[bytes, EventStream]:
    stream = EventStream(wants_usage=wants, wants_running_usage=running)
    return b"".join(stream.feed(part) for part in parts), stream


FINAL = event({"id": "x", "choices": [], "usage": USAGE})
TOKENS = [event(token(f" t{i}")) for i in range(3)]
NULLS = [event(token(f" t{i}", usage=None)) for i in range(3)]
RUNNING = [event(token(f" t{i}", usage={"prompt_tokens": 7, "completion_tokens": i + 1})) for i in range(3)]
DONE = event("[DONE]")


@pytest.mark.parametrize(
    ("because", "sent", "wants", "running", "seen"),
    [
        ("untouched without usage", [*TOKENS, DONE], False, False, [*TOKENS, DONE]),
        ("nulls are no usage", [*NULLS, DONE], False, False, [*NULLS, DONE]),
        ("withheld where not asked for", [*TOKENS, FINAL, DONE], False, False, [*TOKENS, DONE]),
        ("given where asked for", [*TOKENS, FINAL, DONE], True, False, [*TOKENS, FINAL, DONE]),
        ("F10: totals in every event are taken out", [*RUNNING, FINAL, DONE], False, False, [*TOKENS, DONE]),
        (
            "F10: only the last one for who asked for usage",
            [*RUNNING, FINAL, DONE],
            True,
            False,
            [*TOKENS, FINAL, DONE],
        ),
        ("all for who asked for running totals", [*RUNNING, FINAL, DONE], True, True, [*RUNNING, FINAL, DONE]),
        ("comments pass", [b": ping\n\n", *TOKENS, DONE], False, False, [b": ping\n\n", *TOKENS, DONE]),
    ],
)
@pytest.mark.parametrize("cut", ["whole", "events", "bytes"])
def test_usage_as_asked(
    because: str, sent: list[bytes], wants: bool, running: bool, seen: list[bytes], cut: str
) -> None:
    whole = b"".join(sent)
    parts = {"whole": [whole], "events": sent, "bytes": [whole[i : i + 1] for i in range(len(whole))]}[cut]
    out, stream = run(parts, wants=wants, running=running)
    assert [_value(e) for e in _split(out)] == [_value(e) for e in seen], because
    assert stream.done
    if FINAL in sent:
        assert stream.usage is not None
        assert stream.usage.completion_tokens == 3, "the last value, never the sum"


def _split(data: bytes) -> list[bytes]:
    return [part + b"\n\n" for part in data.split(b"\n\n")[:-1]]


def _value(data: bytes) -> Any:
    text = data.removeprefix(b"data: ").strip()
    return json.loads(text) if text.startswith(b"{") else text


TEXTS = st.lists(st.text(max_size=20) | st.just('"usage":{"a"') | st.just("data: [DONE]\n\n"), max_size=8)


@given(TEXTS, st.sampled_from(["\n", "\r\n"]), st.data())
def test_any_cut_gives_the_same_bytes_in_whole_events(texts: list[str], newline: str, data: st.DataObject) -> None:
    sent = b"".join(event(token(text), newline) for text in texts) + event("[DONE]", newline)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=10)))
    parts = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    stream = EventStream(wants_usage=False, wants_running_usage=False)
    out = [stream.feed(part) for part in parts]
    assert b"".join(out) == sent
    assert all(not part or part.endswith((newline * 2).encode()) for part in out)
    assert stream.events == len(texts)
    assert stream.done


def test_f11_missing_and_partial_usage_is_tolerated() -> None:
    """ai-dynamo/dynamo#11062: a chunk without usage metadata raised an exception in mid-stream."""
    sent = [event({"usage": None}), event({"usage": {"prompt_tokens": 5}}), event({}), event({"usage": 3}), DONE]
    out, stream = run(sent)
    assert out.endswith(DONE)
    assert stream.usage is not None
    assert (stream.usage.prompt_tokens, stream.usage.completion_tokens) == (5, None)


def test_an_engines_error_event_is_noticed() -> None:
    assert run([TOKENS[0], event({"error": {"message": "boom"}}), DONE])[1].failed
    assert not run([event(token('{"error": no')), DONE])[1].failed


@pytest.mark.parametrize("usage", [{"prompt_tokens": -1}, {"completion_tokens": 2**31}, {"prompt_tokens": 10**400}])
def test_usage_that_cannot_be_is_not_believed(usage: dict[str, int]) -> None:
    stream = run([event({"usage": {"prompt_tokens": 5}}), event({"usage": usage}), DONE])[1]
    assert stream.usage is not None
    assert stream.usage.prompt_tokens == 5


@pytest.mark.parametrize("after", [b": bye\n\n", b"", b"data: [DONE]\n\n"])
def test_the_end_is_seen_whatever_comes_with_it(after: bytes) -> None:
    stream = run([TOKENS[0] + DONE + after])[1]
    assert (stream.done, stream.events) == (True, 1)


def test_words_of_an_answer_are_no_end() -> None:
    assert not run([event(token("data: [DONE]\n\ndata: [DONE]"))])[1].done


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MAX_EVENT", 1000)
    stream = EventStream(wants_usage=False, wants_running_usage=False)
    with pytest.raises(BrokenStreamError, match="1000 bytes"):
        stream.feed(b"data: " + b"x" * 2000)
