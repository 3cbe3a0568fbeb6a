"""Engines that die or stand still at each point of a request: retried once with the same text, or ended with a clean error.

Real engine processes. The engines are fresh for each test that kills one; what the client sees is compared with an answer to
the same prompt when nothing is wrong.
"""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from gateway_calls import Answer, Connection, raw_request
from gateway_engines import SETTINGS, Engine, ask, body_of, listed, outcome
from gateway_process import GatewayProcess, gateway, wait_until

SHORT_STALL = {**SETTINGS, "stallTimeoutSeconds": 3.0}
KEEPALIVE_TIMER = "02"
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


class Yard:
    """Engines by name, p0 p1 d0 d1: started when first asked for, and again after they were ended."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}

    def get(self, *names: str) -> list[Engine]:
        for name in names:
            if name not in self._engines or self._engines[name].process.poll() is not None:
                strict = ("--on-kv-failure", "fail") if name.startswith("s") else ()
                self._engines[name] = Engine(name, None, *strict)
        found = [self._engines[name] for name in names]
        for engine in found:
            wait_until(engine.up, seconds=60)
        return found

    def close(self) -> None:
        for engine in self._engines.values():
            engine.stop()


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    found = Yard()
    yield found
    found.close()


@contextmanager
def asking(process: GatewayProcess, prompt: str, stream: bool) -> Iterator[Future[Answer]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(ask, process, prompt=prompt, stream=stream)


@contextmanager
def standing(*engines: Engine) -> Iterator[None]:
    for engine in engines:
        engine.stand_still()
    try:
        yield
    finally:
        for engine in engines:
            engine.go_on()


def called(process: GatewayProcess, engines: list[Engine]) -> Engine:
    """The one of these that has a call, once one has."""

    def busy() -> list[Engine]:
        return [one for one in engines if process.metric("steelyard_gateway_engine_calls", engine=one.name)]

    wait_until(busy, seconds=30)
    return busy()[0]


def right(process: GatewayProcess, answer: Answer, prompt: str, stream: bool) -> bool:
    """Whether an answer is whole and has the text that its prompt gets now."""
    calm = ask(process, prompt=prompt, stream=stream)
    assert (answer.status, answer.complete, answer.text) == (200, True, calm.text), answer.body
    return not stream or answer.events.count("[DONE]") == 1


@BOTH
def test_killed_in_mid_prefill(yard: Yard, stream: bool) -> None:
    engines = yard.get("p0", "p1", "d0")
    prompt = f"mid-prefill {stream}"
    with gateway(listed(engines, "PPD"), SETTINGS) as process:
        with standing(*engines[:2]), asking(process, prompt, stream) as answer:
            victim = called(process, engines[:2])
            victim.kill()
            (set(engines[:2]) - {victim}).pop().go_on()
            found = answer.result()
        assert right(process, found, prompt, stream)
        assert process.metric("steelyard_gateway_retries_total", leg="prefill") == 1


@BOTH
def test_the_only_one_of_a_role_is_killed(yard: Yard, stream: bool) -> None:
    """There is nobody to try it on: an answer that says so, soon, and when to come back."""
    prefill, decode = yard.get("p0", "d0")
    with (
        gateway(listed([prefill, decode], "PD"), SETTINGS) as process,
        standing(prefill),
        asking(process, "only", stream) as answer,
    ):
        called(process, [prefill]).kill()
        refused = answer.result()
        assert (refused.status, refused.json["error"]["code"]) == (503, "no_engine")
        assert "prefill" in refused.json["error"]["message"]
        assert refused.headers["retry-after"] == "2"


@BOTH
def test_killed_between_the_calls(yard: Yard, stream: bool) -> None:
    prefill, other, decode = yard.get("p0", "p1", "d0")
    prompt = f"between {stream}"
    with gateway(listed([prefill, decode], "PD"), SETTINGS) as process:
        failures = decode.metric("steelyard_engine_kv_transfer_failures_total")
        with standing(decode), asking(process, prompt, stream) as answer:
            wait_until(lambda: prefill.metric("steelyard_engine_kv_held") == 1)
            prefill.kill()
            decode.go_on()
            found = answer.result()
        process.write_pods(listed([other, decode], "PD"))
        wait_until(lambda: process.metric("steelyard_gateway_engines", role="prefill") == 1)
        assert right(process, found, prompt, stream)
        assert decode.metric("steelyard_engine_kv_transfer_failures_total") == failures + 1


@BOTH
def test_killed_between_the_calls_where_nothing_is_recomputed(yard: Yard, stream: bool) -> None:
    prefill, strict = yard.get("p0", "s0")
    with gateway(listed([prefill, strict], "PD"), SETTINGS) as process:
        with standing(strict), asking(process, "strict", stream) as answer:
            wait_until(lambda: prefill.metric("steelyard_engine_kv_held") == 1)
            prefill.kill()
            strict.go_on()
            failed = answer.result()
        assert (failed.status, failed.json["error"]["code"]) == (500, "kv_transfer")
        assert outcome(process, "failed") == 1


def test_killed_while_it_decodes_a_whole_answer(yard: Yard) -> None:
    """Nothing of it has been sent, so another one decodes it from the start."""
    engines = yard.get("p0", "d0", "d1")
    with gateway(listed(engines, "PDD"), SETTINGS) as process, ThreadPoolExecutor(1) as pool:
        long = pool.submit(ask, process, prompt="whole", max_tokens=800, ignore_eos=True)
        wait_until(lambda: any(e.metric("vllm:num_requests_running") for e in engines[1:]))
        next(e for e in engines[1:] if e.metric("vllm:num_requests_running")).kill()
        answer = long.result()
        assert answer.text == ask(process, prompt="whole", max_tokens=800, ignore_eos=True).text
        assert process.metric("steelyard_gateway_recomputed_total") == 1


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_one_that_stands_still_before_the_first_token(yard: Yard, role: str) -> None:
    """It accepts and never answers: after the stall time-out another one is asked, and it is used again once it goes on."""
    engines = yard.get("p0", "p1", "d0", "d1")
    still = engines[0] if role == "prefill" else engines[2]
    with gateway(listed(engines), SHORT_STALL) as process, ThreadPoolExecutor(6) as pool:
        with standing(still):
            prompts = [f"still {role} {number}" for number in range(6)]
            answers = list(pool.map(lambda prompt: ask(process, prompt=prompt, stream=True), prompts))
        assert all(right(process, answer, prompt, True) for answer, prompt in zip(answers, prompts, strict=True))
        assert process.metric("steelyard_gateway_retries_total", leg=role) >= 1
        assert process.metric("steelyard_gateway_engines_set_aside_total", role=role) >= 1
        wait_until(lambda: process.metric("steelyard_gateway_engines", role=role) == 2, seconds=30)


def test_one_that_stands_still_in_mid_stream(yard: Yard) -> None:
    prefill, decode = yard.get("p0", "d0")
    with gateway(listed([prefill, decode], "PD"), SHORT_STALL) as process:
        connection = Connection(process.port, timeout=60)
        body = body_of(prompt="stream", max_tokens=2000, stream=True, ignore_eos=True)
        connection.send(raw_request("POST", "/v1/completions", body))
        assert connection.head()[0] == 200
        with standing(decode):
            rest = connection.answer_body().decode()
        events = [event.removeprefix("data: ") for event in rest.split("\n\n") if event]
        assert json.loads(events[-1])["error"]["code"] == "engine_failed"
        assert "[DONE]" not in rest
        assert outcome(process, "failed") == 1
        wait_until(lambda: decode.metric("vllm:num_requests_running") == 0, seconds=30)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_kernel_asks_whether_a_silent_engine_is_there(yard: Yard) -> None:
    """A lost node says nothing, and a whole answer is silent until it is complete: only the kernel can tell them apart."""
    prefill, decode = yard.get("p0", "d0")
    with (
        gateway(listed([prefill, decode], "PD"), SETTINGS) as process,
        standing(decode),
        asking(process, "kept alive", False) as answer,
    ):
        called(process, [decode])
        wait_until(lambda: KEEPALIVE_TIMER in timers(decode.port), seconds=30)
        decode.go_on()
        assert answer.result().status == 200


def timers(port: int) -> set[str]:
    """The timers that run on connections to a port of loopback, in the numbers of /proc/net/tcp."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {words[5].partition(":")[0] for words in lines if words[2] == f"0100007F:{port:04X}"}
