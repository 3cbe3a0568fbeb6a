"""How long starts take, by the whole operator: learnt once a replica, whatever readiness does afterwards."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from scaled_world import ScaledWorld
from steelyard.run.metrics import REGISTRY

BOUNDS = {"prefill": {"replicas": {"min": 1, "max": 8}}, "decode": {"replicas": {"min": 1, "max": 8}}}


class Flapping(ScaledWorld):
    """Pods tell their times, and may lose their readiness for a moment: `back` is since when they have it again."""

    def __init__(self) -> None:
        self.back: dict[str, float] = {}
        super().__init__(BOUNDS, start_seconds=30)

    def _pod_status(self, name: str) -> dict[str, Any]:
        def at(moment: float) -> str:
            return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")

        status, born = super()._pod_status(name), self.born[name]
        [ready] = status["conditions"]
        if ready["status"] == "False":
            ready["lastTransitionTime"] = at(born)
        elif name in self.back:
            ready["lastTransitionTime"] = at(self.back[name])
            ready["status"] = "True" if self.now >= self.back[name] else "False"
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(born)}
        engine = {"name": "engine", "restartCount": 0, "state": {"running": {"startedAt": at(born + 10)}}}
        return status | {"conditions": [ready, scheduled], "containerStatuses": [engine]}

    def hiccup(self) -> None:
        """Every pod loses its readiness for two ticks."""
        self.back = dict.fromkeys(self.born, self.now + 10)
        self.tick(4)

    def learnt(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.status()["decision"].get("learnt", {}).get("start")
        return found

    def counted(self) -> float:
        labels = {"namespace": "team-a", "service": "chat", "role": "prefill", "phase": "ready"}
        return REGISTRY.get_sample_value("steelyard_start_seconds_count", labels) or 0.0


def test_a_hiccup_is_no_start() -> None:
    made = Flapping()
    before = made.counted()
    made.look()
    made.tick(4)
    assert made.learnt() is None, "the first pods were ready before anybody looked"
    assert "startSeconds" not in made.status()["prefill"]
    made.arriving = 120_000.0
    made.tick(24)
    grown = made.asked()["prefill"] - 1
    assert grown > 0
    first = made.learnt()
    assert first is not None
    assert (first["loading"], first["warming"], first["samples"]) == (10.0, 20.0, grown)
    assert made.status()["prefill"]["startSeconds"]["total"] == 30.0
    made.now += 5 * 3600
    made.hiccup()
    made.tick(24)
    after = made.learnt()
    assert after is not None
    assert (after["loading"], after["warming"]) == (10.0, 20.0)
    assert made.counted() - before == made.learnt()["samples"]  # type: ignore[index]


@pytest.mark.parametrize("goes_on", ["another operator", "one that leads again"])
def test_an_operator_that_goes_on_learns_nothing_from_what_is_ready_and_keeps_what_was_told(goes_on: str) -> None:
    made = Flapping()
    made.look()
    made.tick(4)
    made.arriving = 120_000.0
    made.tick(24)
    counted, first = made.counted(), made.learnt()
    assert first is not None
    made.now += 5 * 3600
    made.back = dict.fromkeys(made.born, made.now - 60)  # a hiccup that nobody saw
    if goes_on == "another operator":
        made.restart()
    else:
        made.reconcile.starts.reset()
        made.autoscaler.reset()
    made.tick(2)
    made.hiccup()
    made.tick(12)
    later = made.learnt()
    assert later is not None
    assert (later["loading"], later["warming"]) == (10.0, 20.0)
    assert made.status()["prefill"]["startSeconds"]["total"] == 30.0
    assert made.counted() - counted <= later["samples"] - first["samples"], "none twice"
