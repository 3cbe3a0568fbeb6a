"""The real model with the techniques that a service may ask for: KV cache in 8 and 4 bits, speculation, forms, adapters.

What each must not change is held by equality with an engine that has none of them.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from small_models import adapter, ternary

from conftest import TLS, Running, Start

pytestmark = pytest.mark.timeout(600)  # a real model, and many of its tokens, on a busy machine

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
LIST = "apple, pear, plum, cherry, apple, pear, plum, cherry, apple, pear, plum, cherry, apple,"
PROMPTS = [LIST, "Once upon a time, in a harbour far away,", "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n"]
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "people": {"type": "integer"},
        "coast": {"type": "boolean"},
    },
    "required": ["city", "people", "coast"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def start(start_engine: Start, gguf: str) -> Start:
    def start(**flags: object) -> Running:
        values = {"backend": "llama", "served_name": "smollm2", "model": gguf, "context_length": 512}
        return start_engine(**(values | flags))

    return start


@pytest.fixture(scope="module")
def plain(start: Start) -> Running:
    return start()


def text(engine: Running, prompt: str, **fields: Any) -> str:
    return str(engine.complete(prompt, **({"temperature": 0, "max_tokens": 24} | fields))["choices"][0]["text"])


def handed(prefill: Running, prompt: str, **fields: Any) -> dict[str, Any]:
    """The fields that let another engine go on with this prompt."""
    answer = prefill.complete(prompt, max_tokens=1, kv_transfer_params={"do_remote_decode": True}, **fields)
    return {**fields, "kv_transfer_params": answer["kv_transfer_params"]}


@pytest.mark.parametrize("method", ["ngram", "draft"])
def test_guesses_change_no_text_and_save_steps(start: Start, plain: Running, gguf: str, method: str) -> None:
    """The draft is the model itself, so that nearly all its guesses are right."""
    flags = {"draft_model": gguf} if method == "draft" else {}
    engine = start(speculation=method, **flags)
    sampled = {"temperature": 0.9, "top_p": 0.95, "seed": 7}
    for prompt in PROMPTS[:2]:
        for fields in ({}, sampled, {"stop": ["plum"]}):
            assert text(engine, prompt, **fields) == text(plain, prompt, **fields)
    drafts, guessed, accepted = (
        engine.metric(f"vllm:spec_decode_num_{name}_total") for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    assert 0 < accepted <= guessed <= 3 * drafts
    share = accepted / guessed
    assert share > (0.5 if method == "draft" else 0.1), f"of {guessed} guesses {accepted} were right"
    usage = engine.complete(LIST, temperature=0, max_tokens=24)["usage"]
    assert usage["completion_tokens"] == 24


def test_guesses_and_a_handed_over_state_go_together(start: Start, plain: Running) -> None:
    prefill, decode = start(speculation="ngram"), start(speculation="ngram")
    assert text(decode, LIST, **handed(prefill, LIST, temperature=0)) == text(plain, LIST)
    assert decode.metric("vllm:prompt_tokens_by_source_total", source="local_compute") == 1
    assert decode.metric("vllm:spec_decode_num_accepted_tokens_total") > 0


@pytest.mark.parametrize(("kind", "bits"), [("q8_0", 8.5), ("q4_0", 4.5)])
def test_a_smaller_cache_is_handed_over_in_its_form_and_says_one_text(start: Start, kind: str, bits: float) -> None:
    prefill, decode = start(kv_type=kind), start(kv_type=kind)
    alone = [text(prefill, prompt) for prompt in PROMPTS]
    assert [text(decode, prompt, **handed(prefill, prompt, temperature=0)) for prompt in PROMPTS] == alone
    moved = decode.metric("steelyard_engine_kv_transfer_bytes_total", direction="in")
    tokens = decode.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer")
    values = 30 * 2 * 192  # layers, keys and values, of 3 heads of 64
    assert moved / tokens == pytest.approx(values * bits / 8, rel=0.05), "bytes of a token, and some for each state"
    assert prefill.metric("steelyard_engine_info", kv=kind) == 1


def test_eight_bits_do_not_change_what_the_model_is_sure_of(start: Start) -> None:
    counting = ", ".join(str(number) for number in range(1, 60)) + ","
    assert text(start(kv_type="q8_0"), counting, max_tokens=12).startswith(" 60, 61, 62")


def test_caches_of_two_forms_are_not_mixed(start: Start, plain: Running) -> None:
    eight = start(kv_type="q8_0")
    assert text(eight, LIST, **handed(plain, LIST, temperature=0)) == text(eight, LIST), "computed here instead"
    assert eight.metric("steelyard_engine_kv_transfer_failures_total") == 1


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 1.2, "seed": 3}], ids=["greedy", "sampled"])
def test_json_follows_its_schema(plain: Running, fields: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    body = {"messages": [{"role": "user", "content": "Tell me of a city."}], "max_tokens": 120, **fields}
    answer = plain.post(CHAT, **body, response_format=form)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    found = json.loads(choice["message"]["content"])
    assert {name: type(value) for name, value in found.items()} == {"city": str, "people": int, "coast": bool}
    assert choice["finish_reason"] == "stop"


def test_one_of_several_texts(plain: Running) -> None:
    choices = ['a "quoted" word', "back\\slash\nline", "œuf"]
    for seed in range(3):
        found = text(plain, "Say one:", structured_outputs={"choice": choices}, temperature=1.5, seed=seed)
        assert found in choices
    only = text(plain, "Say one:", structured_outputs={"choice": ["never likely 7Q"]}, min_tokens=20, ignore_eos=True)
    assert only.startswith("never likely 7Q")


def test_a_form_is_kept_by_a_pair_and_by_guesses(start: Start, plain: Running) -> None:
    fields = {"structured_outputs": {"json": CITY}, "temperature": 0, "max_tokens": 60}
    alone = text(plain, LIST, **fields)
    json.loads(alone)
    speculating = start(speculation="ngram")
    assert text(speculating, LIST, **fields) == alone
    prefill_fields = {name: value for name, value in fields.items() if name != "max_tokens"}
    assert text(speculating, LIST, **(fields | handed(plain, LIST, **prefill_fields))) == alone


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 10**12},
        {"$ref": "https://127.0.0.1:1/nothing"},
        {"type": "no such type"},
        {"type": "integer", "minimum": -(10**30)},
    ],
    ids=["too long", "elsewhere", "type", "number"],
)
def test_a_schema_that_cannot_be_followed_is_refused_and_the_engine_goes_on(plain: Running, schema: object) -> None:
    answer = plain.post(COMPLETION, prompt="x", max_tokens=4, structured_outputs={"json": schema})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "structured_outputs"
    assert text(plain, LIST, max_tokens=1)


@pytest.mark.parametrize(
    "form",
    [
        {"regex": "(((((a{999}){999}){999}){999}){999})"},
        {"json": {"type": "string", "pattern": "^(((((a{999}){999}){999}){999}){999})$"}},
        {"json": {"type": "array", "items": {"type": "integer"}, "minItems": 10**9}},
        {"regex": "[\\p{L}]{0,500}[\\p{N}]{0,500}(?:\\w{0,900}){0,900}"},
    ],
    ids=["powers", "powers in a schema", "a thousand million", "unicode"],
)
def test_a_form_that_would_cost_too_much_ends_or_is_refused(plain: Running, form: dict[str, object]) -> None:
    answer = plain.post(COMPLETION, prompt="x", max_tokens=4, structured_outputs=form)
    assert answer.status_code in {200, 400}, answer.text
    assert text(plain, LIST, max_tokens=1)


def test_a_regular_expression(plain: Running) -> None:
    found = text(plain, "A number:", structured_outputs={"regex": "[0-9]{3}-[a-f]{2}"}, temperature=1.4, seed=5)
    assert re.fullmatch("[0-9]{3}-[a-f]{2}", found)


STORY = "The lighthouse keeper wrote down every ship that passed, its flag, its cargo and the hour. " * 6
WINDOW = {"sink": 4, "recent": 60}


def test_a_window_says_one_text_however_it_is_computed(start: Start) -> None:
    """Prompts of one and a half windows and answers beyond another: alone, in company, with guesses, and by a pair."""
    alone, other = start(**WINDOW), start(**WINDOW, speculation="ngram", max_batch_tokens=24)
    prompts = [STORY, STORY[50:], LIST * 2]
    expected = [text(alone, prompt, max_tokens=70) for prompt in prompts]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda prompt: text(other, prompt, max_tokens=70), prompts))
    assert together == expected
    assert alone.metric("steelyard_engine_kv_forgotten_tokens_total") > 100
    fields = handed(alone, STORY, temperature=0)
    assert text(other, STORY, **(fields | {"max_tokens": 70})) == expected[0]
    assert other.metric("vllm:prompt_tokens_by_source_total", source="external_kv_transfer") > 100
    assert other.metric("steelyard_engine_kv_transfer_failures_total") == 0


def test_a_window_holds_more_text_than_the_cache_has_room_for(start: Start, plain: Running) -> None:
    """Two texts of 200 tokens in a cache of 160; and a short text is as without a window, its prefix shared."""
    engine = start(**WINDOW, kv_tokens=160, max_sequences=2, max_batch_tokens=64)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda prompt: text(engine, prompt, max_tokens=90), [STORY, STORY]))
    assert found[0] == found[1]
    assert engine.metric("vllm:num_preemptions_total") == 0
    short = "Once upon a time, in a harbour far away, there was a"
    assert text(engine, short, max_tokens=20) == text(plain, short, max_tokens=20)


def test_a_ternary_model_is_served_as_it_is(start_engine: Start, gguf: str, tmp_path: Path) -> None:
    model = ternary(tmp_path / "ternary.gguf", Path(gguf))
    prefill, decode = (
        start_engine(backend="llama", served_name="bitnet", model=model, context_length=128) for _ in range(2)
    )
    alone = text(prefill, "one two three", max_tokens=8, ignore_eos=True)
    fields = handed(prefill, "one two three", temperature=0)
    assert text(decode, "one two three", **(fields | {"max_tokens": 8, "ignore_eos": True})) == alone
    samples = httpx.get(prefill.url + "/metrics", verify=TLS).text
    assert "TQ2_0" in next(line for line in samples.splitlines() if line.startswith("steelyard_engine_info{"))


@pytest.fixture(scope="module")
def adapted(start: Start, tmp_path_factory: pytest.TempPathFactory) -> list[Running]:
    """Two engines with the same two adapters: one that does nothing, one that changes every answer."""
    folder = tmp_path_factory.mktemp("adapters")
    none = adapter(folder / "none.gguf", 30, 576, 0.0, 1)
    loud = adapter(folder / "loud.gguf", 30, 576, 0.25, 2)
    return [start(lora=[f"none={none}", f"loud={loud}"]) for _ in range(2)]


def test_adapters_are_served_beside_the_model_and_share_no_cache(adapted: list[Running], plain: Running) -> None:
    engine = adapted[0]
    prompt = LIST * 2
    names = ["smollm2", "none", "loud"]
    bodies = [{"model": name} for name in names]
    found = {name: text(engine, prompt, **body) for name, body in zip(names, bodies, strict=True)}
    assert found["smollm2"] == found["none"] == text(plain, prompt)
    assert found["loud"] != found["smollm2"]
    again = engine.complete(prompt, model="loud", temperature=0, max_tokens=24)
    assert again["model"] == "loud"
    assert again["choices"][0]["text"] == found["loud"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, "its own prefix is found again"
    assert [model["id"] for model in _models(engine)] == names


def test_sequences_of_several_adapters_run_together(adapted: list[Running]) -> None:
    engine = adapted[0]
    names = ["smollm2", "loud", "none", "loud", "smollm2", "loud"]
    prompts = [PROMPTS[number % 3] for number in range(6)]
    ask = lambda name, prompt: text(engine, prompt, model=name)  # noqa: E731
    alone = [ask(name, prompt) for name, prompt in zip(names, prompts, strict=True)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, names, prompts)) == alone


def test_an_adapters_state_is_handed_over_to_the_same_adapter_only(adapted: list[Running]) -> None:
    prefill, decode = adapted
    expected = text(prefill, LIST, model="loud")
    assert text(decode, LIST, **handed(prefill, LIST, model="loud", temperature=0)) == expected
    failures = decode.metric("steelyard_engine_kv_transfer_failures_total")
    wrong = handed(prefill, LIST, model="none", temperature=0) | {"model": "loud"}
    assert text(decode, LIST, **wrong) == expected, "computed here instead"
    assert decode.metric("steelyard_engine_kv_transfer_failures_total") == failures + 1


def _models(engine: Running) -> list[dict[str, Any]]:
    return list(httpx.get(engine.url + "/v1/models", verify=TLS).json()["data"])
