"""The gateways' quarter-second windows: read, refused, and added up although gateways are asked at different moments."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.decide.queue.windows import WINDOW_SECONDS, ArrivalWindows
from steelyard.gateway.admin import demand_page
from steelyard.observe.demand import AHEAD, LATE_SECONDS, Windows, added, ask_all, parse

NOW = 1_000_000.0


def body(**change: Any) -> bytes:
    return json.dumps({"windowSeconds": 0.25, "end": NOW, "uncachedTokens": [1, 2], **change}).encode()


def test_what_the_gateway_serves_is_read() -> None:
    windows = ArrivalWindows()
    windows.add(NOW - 1.0, 100.0)
    _, _, served = demand_page(lambda: windows.complete(NOW), WINDOW_SECONDS)()
    found = parse(served)
    assert found is not None
    end, tokens = found
    assert (end, len(tokens), sum(tokens), tokens[-4]) == (NOW, 960, 100.0, 100.0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        body(windowSeconds=1.0),
        body(end="soon"),
        body(uncachedTokens=[]),
        body(uncachedTokens=[1, None]),
        body(uncachedTokens=[-1]),
        body(uncachedTokens=[10**400]),
        body(end=10**400),
        json.dumps({"windowSeconds": 0.25, "end": NOW, "uncachedTokens": [float("nan")]}).encode(),
    ],
)
def test_what_makes_no_sense_is_unknown(data: bytes) -> None:
    assert parse(data) is None


@pytest.mark.parametrize(
    ("given_windows", "expected", "because"),
    [
        ([(NOW, (1.0, 2.0))], (1.0, 2.0), "one gateway"),
        ([(NOW, (1.0, 2.0)), (NOW, (10.0, 20.0))], (11.0, 22.0), "asked within one window"),
        (
            [(NOW, (1.0, 2.0, 3.0)), (NOW + 0.25, (20.0, 30.0, 99.0))],
            (1.0, 22.0, 33.0),
            "the last window of the second is not over for the first",
        ),
        ([(NOW, (1.0,)), None], None, "one that does not answer may have taken in anything"),
        ([], None, "no gateway, no demand known"),
        ([(NOW - LATE_SECONDS - 1, (1.0,))], None, "its clock is wrong"),
        ([(NOW + LATE_SECONDS + 1, (1.0,))], None, "its clock is wrong"),
        ([(NOW, (1.0,)), (NOW + LATE_SECONDS + 1, (1.0,))], None, "that of the second"),
        ([(NOW, (1.0,)), (1e308, (1.0,))], None, "that of the second, beyond any clock"),
    ],
)
def test_windows_add_up(given_windows: list[Windows | None], expected: tuple[float, ...] | None, because: str) -> None:
    assert added(given_windows, NOW) == expected, because


@given(
    st.lists(
        st.tuples(st.floats(NOW - 200, NOW - 10), st.integers(1, 9000), st.integers(0, 2)), min_size=1, max_size=40
    ),
    st.lists(st.floats(0, 3), min_size=3, max_size=3),
)
def test_no_token_is_lost_between_gateways(arrivals: list[tuple[float, int, int]], later: list[float]) -> None:
    """Three gateways asked up to three seconds apart: what all of them have complete is summed exactly."""
    gateways = [ArrivalWindows() for _ in range(3)]
    for at, tokens, place in sorted(arrivals):
        gateways[place].add(at, float(tokens))
    asked = [windows.complete(NOW + delay) for windows, delay in zip(gateways, later, strict=True)]
    found = added([(end, tuple(tokens)) for end, tokens in asked], NOW)
    assert found is not None
    assert sum(found) == sum(tokens for _, tokens, _ in arrivals)


def test_every_service_gets_the_sum_of_its_own_gateways() -> None:
    answers: dict[str, Windows | None] = {"10.0.0.1": (NOW, (1.0,)), "10.0.0.2": (NOW, (2.0,)), "10.0.0.3": None}
    wanted = {("a", "chat"): ("10.0.0.1", "10.0.0.2"), ("a", "mail"): ("10.0.0.3",)}
    with ThreadPoolExecutor(2) as pool:
        found = dict(ask_all(answers.__getitem__, wanted.items(), NOW, pool))
    assert found == {("a", "chat"): (3.0,), ("a", "mail"): None}


def test_few_services_are_asked_ahead_of_the_one_that_is_decided_for() -> None:
    """The windows of a fleet of thousands are never there at once."""
    asked: list[str] = []

    def ask(address: str) -> Windows | None:
        asked.append(address)
        return NOW, (1.0,)

    every = [(("a", f"chat-{number}"), (f"10.0.0.{number}",)) for number in range(3 * AHEAD)]
    with ThreadPoolExecutor(2) as pool:
        for place, (key, found) in enumerate(ask_all(ask, every, NOW, pool)):
            assert key == every[place][0]
            assert found == (1.0,)
            assert len(asked) <= place + 1 + AHEAD
    assert len(asked) == len(every)
