"""One exchange under a clock of ours: signs of life, stalls, its time, a client that does not read."""

import json
from typing import Any

import pytest
from steelyard.decide.queue.judge import Outcome
from steelyard.gateway.bodies import COMPLETIONS, read_body
from steelyard.gateway.errors import ClientError
from steelyard.gateway.exchange import SIGN_OF_LIFE_SECONDS, Exchange, Leg
from steelyard.gateway.pods import Pod
from steelyard.gateway.request import Request


class FakeClient:
    """Notes what would be written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.ended = self.aborted = False
        self.failed: ClientError | None = None
        self.paused_since: float | None = None

    def start_stream(self, content_type: bytes, extra: object) -> None:
        self.written.append(b"HEAD")

    def send(self, data: bytes) -> None:
        self.written.append(data)

    def end_stream(self, *, close: bool = False) -> None:
        self.ended = True

    def fail(self, error: ClientError, extra: object) -> None:
        self.failed = error

    def keep_alive(self) -> bool:
        return True

    def respond(self, response: bytes) -> None:
        self.written.append(response)

    def abort(self) -> None:
        self.aborted = True


class FakeCall:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def pause(self, paused: bool) -> None:
        self.paused = paused


class FakeBackend:
    host = b"x"
    dispatched = 0

    def __init__(self) -> None:
        self.pod = Pod("pod", "x")
        self.calls: list[FakeCall] = []

    def call(self, request: bytes, caller: object) -> FakeCall:
        self.calls.append(FakeCall())
        return self.calls[-1]


class FakeRouter:
    def __init__(self) -> None:
        self.seconds = 100.0
        self.outcomes: list[Outcome] = []
        self.retried = self.set_aside = self.first = 0

    def now(self) -> float:
        return self.seconds

    def prefilled(self, exchange: Exchange, usage: object) -> None: ...

    def first_byte(self, exchange: Exchange) -> None:
        self.first += 1

    def retry(self, exchange: Exchange, backend: object) -> None:
        self.retried += 1

    def broken(self, backend: object, why: str) -> None:
        self.set_aside += 1

    def ended(self, exchange: Exchange, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


class Set:
    """An exchange with fakes all around."""

    def __init__(self, **fields: Any) -> None:
        body = json.dumps({"model": "m", "prompt": "x", "stream": True, **fields}).encode()
        request = Request()
        request.path = COMPLETIONS
        self.router, self.client, self.backend = FakeRouter(), FakeClient(), FakeBackend()
        self.exchange = Exchange(self.router, self.client, request, read_body(COMPLETIONS, body), 1, b"id")  # type: ignore[arg-type]

    def wait(self, seconds: float, *, timeout: float = 600.0, stall: float = 60.0) -> None:
        self.router.seconds += seconds
        self.exchange.sweep(self.router.seconds, timeout, stall)

    def stream(self, *events: bytes) -> None:
        self.exchange.answer_head(200, b"text/event-stream", None)
        for event in events:
            self.exchange.answer_data(event)


TOKEN = b'data: {"choices":[{"text":"a"}]}\n\n'


@pytest.mark.parametrize("leg", ["queue", "prefill", "answer"])
def test_e19_a_stream_that_waits_gives_signs_of_life_until_its_first_token(leg: str) -> None:
    """vllm-project/vllm#47647: proxies with 60 s idle limits cut streams that wait for their first token."""
    s = Set()
    if leg == "prefill":
        s.exchange.send_prefill(s.backend)  # type: ignore[arg-type]
    elif leg == "answer":
        s.exchange.send_answer(s.backend)  # type: ignore[arg-type]
    for _ in range(6):
        s.wait(SIGN_OF_LIFE_SECONDS / 2 + 0.1, stall=1e9)
    assert s.client.written == [b"HEAD", b": waiting\n\n", b": waiting\n\n", b": waiting\n\n"]
    s.exchange.send_answer(s.backend)  # type: ignore[arg-type]
    s.stream(TOKEN)
    assert s.client.written[4:] == [TOKEN], "one head only"
    s.wait(SIGN_OF_LIFE_SECONDS * 2, stall=1e9)
    assert s.client.written[5:] == []


def test_an_answer_in_one_piece_waits_in_silence() -> None:
    s = Set(stream=False)
    s.wait(SIGN_OF_LIFE_SECONDS * 3)
    assert s.client.written == []


def test_signs_of_life_do_not_hide_a_stalled_engine() -> None:
    s = Set()
    s.exchange.send_prefill(s.backend)  # type: ignore[arg-type]
    for _ in range(5):
        s.wait(13.0)
    assert s.backend.calls[0].cancelled
    assert (s.router.retried, s.router.set_aside) == (1, 1)


@pytest.mark.parametrize("aggregated", [False, True])
def test_a_long_prompt_on_a_slow_engine_is_no_stall_but_a_pause_after_its_first_token_is(aggregated: bool) -> None:
    s = Set()
    (s.exchange.send_answer if aggregated else s.exchange.send_prefill)(s.backend)  # type: ignore[arg-type]
    s.exchange.expected = 100.0
    s.wait(150)
    assert not s.backend.calls[0].cancelled
    if aggregated:
        s.stream(TOKEN)
        s.wait(61)
    else:
        s.wait(11)
    assert s.backend.calls[0].cancelled


def test_after_signs_of_life_a_failure_is_an_event_and_a_second_try_still_possible() -> None:
    s = Set()
    s.exchange.send_answer(s.backend)  # type: ignore[arg-type]
    s.wait(SIGN_OF_LIFE_SECONDS + 1)
    s.exchange.answer_failed("gone", unreachable=True)
    assert s.router.retried == 1
    s.exchange.send_answer(s.backend)  # type: ignore[arg-type]
    s.exchange.answer_failed("gone", unreachable=True)
    assert b"engine_failed" in s.client.written[-1]
    assert (s.client.ended, s.client.failed, s.router.outcomes) == (True, None, [Outcome.FAILED])


def test_a_long_whole_answer_is_bounded_by_the_requests_own_time_alone() -> None:
    s = Set(stream=False)
    s.exchange.send_answer(s.backend)  # type: ignore[arg-type]
    s.wait(599)
    assert not s.router.outcomes
    s.wait(2)
    assert (s.client.failed is not None and s.client.failed.status, s.router.outcomes) == (504, [Outcome.FAILED])
    assert s.backend.calls[0].cancelled


def test_a_client_that_does_not_read_is_left_in_peace_for_a_while_and_then_dropped() -> None:
    s = Set()
    s.exchange.send_answer(s.backend)  # type: ignore[arg-type]
    s.stream(TOKEN)
    s.client.paused_since = s.router.seconds
    s.wait(59)
    assert not s.client.aborted
    assert not s.router.set_aside, "its engine is not to blame"
    s.wait(2)
    assert s.client.aborted


def test_an_exchange_ends_once_whatever_follows() -> None:
    s = Set()
    s.exchange.send_answer(s.backend)  # type: ignore[arg-type]
    s.stream(TOKEN, b"data: [DONE]\n\n")
    s.exchange.answer_end()
    assert s.exchange.leg is Leg.OVER
    s.exchange.client_gone()
    s.exchange.answer_failed("late", unreachable=False)
    s.exchange.abandon(ClientError(503, "late"))
    s.wait(10_000)
    assert s.router.outcomes == [Outcome.COMPLETED]


def test_the_prompt_is_not_held_while_its_answer_streams() -> None:
    s = Set(prompt="x" * 100_000)
    s.exchange.send_answer(s.backend)  # type: ignore[arg-type]
    s.stream(TOKEN)
    assert not s.exchange.body.fields
    assert not s.exchange.body.prompt


@pytest.mark.parametrize(("n", "usage", "tokens"), [(1, 12, 12), (3, 12, 4), (5, 12, 3), (1, None, 2)])
def test_tokens_of_one_answer(n: int, usage: int | None, tokens: int) -> None:
    s = Set(n=n)
    s.exchange.send_answer(s.backend)  # type: ignore[arg-type]
    final = b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\n' % usage if usage else b""
    s.stream(TOKEN, TOKEN, final, b"data: [DONE]\n\n")
    s.exchange.answer_end()
    assert s.exchange.answer_tokens == tokens
