"""The status writer writes what is new and nothing else; an event that cannot be written does no harm."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from memory_api import MemoryApi
from operator_bodies import service_body
from steelyard.api.reasons import EventReason
from steelyard.apply.report import NOTE_LIMIT, tell, write_status
from steelyard.observe.client import Denied

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_same_status_is_not_written_again() -> None:
    api = MemoryApi()
    api.put(service_body())
    assert write_status(api, api.body("InferenceService", "chat"), {"ready": "1/2"})
    assert not write_status(api, api.body("InferenceService", "chat"), {"ready": "1/2"})
    assert write_status(api, api.body("InferenceService", "chat"), {"ready": "2/2"})
    assert api.body("InferenceService", "chat")["status"] == {"ready": "2/2"}


def test_a_schema_that_drops_fields_is_told_and_counts_as_no_change(caplog: pytest.LogCaptureFixture) -> None:
    """An outdated CRD pruned what an operator wrote, and nobody noticed (B36, B37)."""

    class Outdated(MemoryApi):
        def apply(self, resource: Any, body: Any, manager: str, subresource: str | None = None, **_: Any) -> Any:
            kept = {name: value for name, value in body["status"].items() if name != "ratio"}
            return super().apply(resource, {**body, "status": kept}, manager, subresource)

    api = Outdated()
    api.put(service_body())
    assert write_status(api, api.body("InferenceService", "chat"), {"ready": "1/2", "ratio": "1:1"})
    assert "does not keep status fields ratio" in caplog.text
    assert not write_status(api, api.body("InferenceService", "chat"), {"ready": "1/2", "ratio": "1:1"})


def test_a_service_that_went_away_needs_no_status() -> None:
    assert not write_status(MemoryApi(), service_body(), {"ready": "1/2"})


def test_a_denied_event_does_not_fail_the_reconcile(caplog: pytest.LogCaptureFixture) -> None:
    """A kopf operator failed its handler for want of the right to post events (B35)."""

    class Mute(MemoryApi):
        def create(self, *_: object, **__: object) -> dict[str, object]:
            raise Denied(403, "events is forbidden")

    tell(Mute(), service_body(), EventReason.SCALED, "decode 1→2", "operator-1", now=NOW)
    assert "forbidden" in caplog.text


def test_long_notes_are_cut_to_what_the_api_takes() -> None:
    api = MemoryApi()
    tell(api, service_body(), EventReason.REJECTED, "x" * 5000, "operator-1", warning=True, now=NOW)
    assert len(api.events[0][1]) == NOTE_LIMIT
