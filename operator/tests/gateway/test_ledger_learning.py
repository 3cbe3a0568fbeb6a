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
        kv_transfer_params=b"{}", tokens=tokens, body=body, sent_at=now - seconds, counted_at=None
    )
    books.prefilled(exchange, Usage(prompt_tokens=tokens), alone=alone, now=now)


def test_one_request_at_a_time_until_enough_is_known() -> None:
    books = ledger(gateways=2)
    for number in range(ENOUGH_SAMPLES):
        assert books.theta == 0.0
        prefill(books, 100 + number, 0.05, now=10.0)  # at first every one counts, however close they come
    assert books.theta == THETA_SECONDS / 2


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
