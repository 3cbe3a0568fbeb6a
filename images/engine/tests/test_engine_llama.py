"""The real model in real processes: a prefill and a decode engine together say exactly what one engine says alone."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from conftest import Running, Start

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
LONG = "The lighthouse keeper wrote down every ship that passed, its flag, its cargo and the hour. " * 12


@dataclass(frozen=True)
class Pair:
    """A prefill and a decode engine, asked as the gateway asks them."""

    prefill: Running
    decode: Running

    def hand_off(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        first = body | {"max_tokens": 1, "stream": False, "kv_transfer_params": {"do_remote_decode": True}}
        answer = self.prefill.post(path, **first)
        assert answer.status_code == 200, answer.text
        return body | {"kv_transfer_params": answer.json()["kv_transfer_params"]}

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return ask(self.decode, path, self.hand_off(path, body))


def ask(engine: Running, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = engine.post(path, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def start_llama(start_engine: Start, gguf: str) -> Start:
    def start(**flags: object) -> Running:
        values = {"backend": "llama", "served_name": "smollm2", "model": gguf, "context_length": 1024}
        return start_engine(**(values | flags))

    return start


@pytest.fixture(scope="module")
def pair(start_llama: Start) -> Pair:
    return Pair(start_llama(), start_llama())


@pytest.fixture(scope="module")
def alone(start_llama: Start) -> Running:
    return start_llama()


def chat(text: str, **fields: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 20} | fields


def complete(prompt: object, **fields: object) -> dict[str, Any]:
    return {"prompt": prompt, "temperature": 0, "max_tokens": 20} | fields


CASES = [
    ("chat", CHAT, chat("Explain why the sky is blue in three sentences.")),
    ("chat with a system message", CHAT, chat("") | {"messages": [
        {"role": "system", "content": "You answer like a sailor."},
        {"role": "user", "content": "Where is the north?"},
        {"role": "assistant", "content": "Arr, that way."},
        {"role": "user", "content": "And how do you know?"},
    ]}),
    ("completion", COMPLETION, complete("Once upon a time, in a harbour far away,")),
    ("one token", COMPLETION, complete("The capital of France is", max_tokens=1)),
    ("a prompt of one token", COMPLETION, complete([504], max_tokens=8)),
    ("a prompt of many chunks", COMPLETION, complete(LONG, max_tokens=12)),
    ("stop string", CHAT, chat("Count from one to ten in words.", stop=["\n", "two"])),
    ("stop string over tokens", COMPLETION, complete("1, 2, 3, 4, 5,", stop="8, 9")),
    ("characters beyond ASCII", CHAT, chat("Écris « œuf » et 日本語 et 🙂, s'il te plaît.")),
    ("token ids", COMPLETION, complete(list(range(300, 360)))),
    ("seeded sampling", CHAT, chat("Tell me a story about a fox.", temperature=0.8, top_p=0.9, seed=11)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "path", "body"), CASES, ids=[case[0] for case in CASES])
def test_a_pair_says_what_one_engine_says(pair: Pair, alone: Running, name: str, path: str, body: dict[str, Any]):
    whole = ask(alone, path, body)
    handed = pair.ask(path, body)
    assert handed["choices"] == whole["choices"]
    assert handed["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    *events, done = pair.decode.events(path, **pair.hand_off(path, body))
    field = "delta" if path == CHAT else None
    streamed = "".join(e["choices"][0][field]["content"] if field else e["choices"][0]["text"] for e in events)
    choice = whole["choices"][0]
    assert streamed == (choice["message"]["content"] if field else choice["text"])
    assert events[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    assert done == "[DONE]"


def test_decode_computes_one_prompt_token(pair: Pair):
    names = ("local_compute", "external_kv_transfer", "local_cache_hit")
    count = lambda: [pair.decode.metric("vllm:prompt_tokens_by_source_total", source=name) for name in names]  # noqa: E731
    before, moved = count(), pair.decode.metric("steelyard_engine_kv_transfer_bytes_total", direction="in")
    usage = pair.ask(COMPLETION, complete(LONG + "And then", max_tokens=2))["usage"]
    gained = [after - b for after, b in zip(count(), before, strict=True)]
    assert gained == [1, usage["prompt_tokens"] - 1, 0]
    bytes_in = pair.decode.metric("steelyard_engine_kv_transfer_bytes_total", direction="in") - moved
    assert bytes_in > 20_000 * usage["prompt_tokens"], "30 layers of 192 keys and values in two bytes each"
    assert pair.decode.metric("steelyard_engine_kv_transfer_failures_total") == 0


def test_company_does_not_change_an_answer(pair: Pair, alone: Running):
    """Requests together get, token for token, what each got alone; also when their prompts share a cached prefix."""
    bodies = [complete(f"{LONG} On day {day} it", max_tokens=16) for day in range(3)]
    bodies += [chat(f"Name {count} fruits.") for count in ("two", "three", "four")]
    paths = [COMPLETION] * 3 + [CHAT] * 3
    expected = [ask(alone, path, body)["choices"] for path, body in zip(paths, bodies, strict=True)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(ask, [alone] * 6, paths, bodies))
        paired = list(pool.map(pair.ask, paths, bodies))
    assert [answer["choices"] for answer in together] == expected
    assert [answer["choices"] for answer in paired] == expected
    assert together[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 100


def test_preemption_does_not_change_an_answer(start_llama: Start):
    small = start_llama(kv_tokens=112, context_length=64, max_batch_tokens=48)
    bodies = [complete(f"A recipe with {number} eggs:", max_tokens=36, ignore_eos=True) for number in range(4)]
    expected = [ask(small, COMPLETION, body)["choices"] for body in bodies]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(ask, [small] * 4, [COMPLETION] * 4, bodies))
    assert small.metric("vllm:num_preemptions_total") > 0
    assert [answer["choices"] for answer in together] == expected


def test_the_models_end_of_turn_ends_an_answer(alone: Running):
    answer = ask(alone, CHAT, chat("Say hello.", max_tokens=200))
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "<|im_end|>" not in answer["choices"][0]["message"]["content"]
    longer = ask(alone, CHAT, chat("Say hello.", max_tokens=80, ignore_eos=True))
    assert longer["usage"]["completion_tokens"] == 80


def test_a_context_beyond_the_models_is_refused(start_engine: Start, gguf: str):
    flags = {"backend": "llama", "served_name": "x", "model": gguf, "context_length": 9000, "max_sequences": 1}
    engine = start_engine(wait=False, **flags)
    assert engine.exit_status() == 1
    assert "--context-length 9000 is beyond the 8192 tokens" in engine.log.read_text()
