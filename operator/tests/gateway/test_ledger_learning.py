"""What the ledger learns from prefills, and how often."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from gateway_process import SETTINGS
from steelyard.decide.queue.estimate import ENOUGH_SAMPLES, THETA_SECONDS
from steelyard.gateway.ledger import SAMPLE_SECONDS, Ledger
from steelyard.gateway.metrics import Metrics
from steelyard.gateway.settings import parse_settings
from steelyard.gateway.usage import Usage


def ledger(**settings: Any) -> Ledger:
    return Ledger(parse_settings(json.dumps({**SETTINGS, **settings}).encode()), Metrics())


def prefill(books: Ledger, tokens: int, seconds: float, now: float, alone: bool = True) -> None:
    body = SimpleNamespace(prompt=b"x" * 4 * tokens, prompt_token_ids=None)
    exchange: Any = SimpleNamespace(
        kv_transfer_params=b"{}", tokens=tokens, body=body, sent_at=now - seconds, counted_at=None, counted=0.0
    )
    books.prefilled(exchange, Usage(prompt_tokens=tokens), alone=alone, now=now)


def test_one_request_at_a_time_until_enough_is_known() -> None:
    books = ledger(gateways=2)
    for number in range(ENOUGH_SAMPLES):
        assert books.theta == 0.0
        prefill(books, 100 + number, 0.05, now=10.0)  # at first every one counts, however close they come
    assert books.theta == THETA_SECONDS / 2


@pytest.mark.parametrize(
    ("guessed", "right", "counted", "because"),
    [
        (300, 300, 300, "one replica meets its objective"),
        (300, 200, 200, "the engine found a part of it cached"),
        (600, 600, 0, "a prefill of 0.61 s for an objective of 0.55 s: more replicas do not help it"),
        (600, 200, 200, "most of it was cached: it was no such prompt after all"),
        (300, 600, 0, "it was longer than its bytes let expect"),
    ],
)
def test_demand_leaves_out_prompts_that_are_late_even_alone(
    guessed: int, right: int, counted: int, because: str
) -> None:
    objectives = {"ttftSeconds": 0.6, "tpotSeconds": None}
    books = ledger(objectives=objectives, handoffSeconds=0.05, prefillPrior={"a": 0.01, "b": 0.001, "c": 0.0})
    body = SimpleNamespace(prompt=b"x", prompt_token_ids=guessed)
    exchange: Any = SimpleNamespace(
        kv_transfer_params=b"{}", tokens=guessed, body=body, sent_at=0.0, counted_at=None, counted=0.0
    )
    books.arrived(exchange, wall=1000.1)
    books.prefilled(exchange, Usage(prompt_tokens=right), alone=False, now=1.0)
    assert sum(books.windows.complete(1001.0)[1]) == counted, because


def test_the_counter_of_uncached_tokens_follows_the_engines_and_never_falls() -> None:
    """Whoever reads rates alone must not take a wrong guess about a cache for little work."""
    counted = Metrics()
    books = Ledger(parse_settings(json.dumps(SETTINGS).encode()), counted)
    seen = [0.0]
    for guessed, right in ((100, 300), (500, 100), (200, 200), (500, 500), (0, 700)):
        body = SimpleNamespace(prompt=b"x", prompt_token_ids=guessed)
        exchange: Any = SimpleNamespace(
            kv_transfer_params=b"{}", tokens=guessed, body=body, sent_at=0.0, counted_at=None, counted=0.0
        )
        books.arrived(exchange, wall=1000.1)
        seen.append(counted.uncached_tokens)
        books.prefilled(exchange, Usage(prompt_tokens=right), alone=False, now=1.0)
        seen.append(counted.uncached_tokens)
    assert seen == sorted(seen)
    assert seen[-1] == 300 + 100 + 200 + 500 + 700


def test_a_prefill_beside_others_teaches_nothing() -> None:
    books = ledger()
    for number in range(3 * ENOUGH_SAMPLES):
        prefill(books, 100 + number, 0.05, now=10.0, alone=False)
    assert books.theta == 0.0


@pytest.mark.parametrize(("apart", "learns"), [(0.0, False), (2 * SAMPLE_SECONDS, True)])
def test_once_plenty_is_known_few_of_many_are_looked_at(apart: float, learns: bool) -> None:
    books = ledger()
    for number in range(5 * ENOUGH_SAMPLES):
        prefill(books, 100 + number % 7 * 100, 0.5, now=10.0 + number)
    before = books.prefill_seconds(400)
    for number in range(10 * ENOUGH_SAMPLES):
        prefill(books, 100 + number % 7 * 100, 0.05, now=1000.0 + number * apart)
    assert before == pytest.approx(0.5, rel=0.1)
    assert (books.prefill_seconds(400) < before / 3) is learns
