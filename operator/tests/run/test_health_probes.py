"""Liveness is more than a turning loop: silent watches and stuck work count as dead."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from steelyard.run import probes
from steelyard.run.health import Health
from steelyard.run.reconcile import Result
from steelyard.run.work import Work

KEY = ("team-a", "chat")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, None),
        ({"loop_turned": -31}, "event loop"),
        ({"oldest_wait": 121}, "has been due"),
        ({"oldest_wait": 119}, None),
    ],
)
def test_complaints(given: dict[str, float], complaint: str | None) -> None:
    health = Health(**{"loop_turned": 0.0, **given})
    found = health.complaints(now=0)
    assert (complaint is None and found == []) or (complaint is not None and complaint in found[0])


def test_a_watch_that_does_not_tell_of_a_generation_is_dead() -> None:
    health = Health(loop_turned=0)
    health.watched(KEY, 1)
    health.read(KEY, 2, now=0)
    health.loop_turned = 200
    assert health.complaints(now=100) == []
    assert "has not told of generation 2 of team-a/chat" in health.complaints(now=200)[0]
    health.watched(KEY, 2)
    assert health.complaints(now=200) == []


def test_a_later_generation_does_not_restart_the_clock() -> None:
    health = Health(loop_turned=200)
    health.read(KEY, 2, now=0)
    health.read(KEY, 3, now=119)
    assert health.complaints(now=121)


def test_a_deleted_service_is_no_complaint() -> None:
    health = Health(loop_turned=200)
    health.read(KEY, 2, now=0)
    health.forget(KEY)
    assert health.complaints(now=200) == []


def test_a_read_that_ends_after_the_deletion_is_no_silent_watch() -> None:
    """The watch tells of the deletion while a run that still saw the service is on its way."""
    health = Health(loop_turned=200)
    results = [Result(300, generation=2), Result(None, outcome="gone")]
    work = Work(lambda *_: results.pop(0), health)
    health.watched(KEY, 2)
    health.forget(KEY)  # DELETED
    assert work(KEY, 0) == 300
    assert health.complaints(now=float("inf"))[-1:] != []
    assert work(KEY, 0) is None  # the deletion asked for this run
    health.loop_turned = float("inf")
    assert health.complaints(now=float("inf")) == []


def test_the_port_answers_live_ready_and_metrics() -> None:
    now = [0.0]
    health = Health(loop_turned=0.0)
    server = probes.serve(health, port=0, clock=lambda: now[0])
    base = f"http://127.0.0.1:{server.server_address[1]}"

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{base}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    try:
        assert get("/live") == (200, "alive")
        assert get("/ready")[0] == 503
        health.watching = True
        assert get("/ready") == (200, "ready")
        now[0] = 1000
        status, text = get("/live")
        assert status == 503
        assert "event loop" in text
        status, text = get("/metrics")
        assert status == 200
        assert "steelyard_leading" in text
        assert get("/other")[0] == 404
    finally:
        server.shutdown()
