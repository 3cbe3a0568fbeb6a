"""How long replicas took to start, told once a pod to the operator's own metrics.

A new operator tells of every pod that runs once more: its counters begin at zero, so nothing is counted twice in one series.
"""

from collections.abc import Iterable

from steelyard.decide.snapshot import Pod
from steelyard.run.metrics import START_SECONDS

Key = tuple[str, str]  # namespace, name of the service
PHASES = ("scheduled", "pulled", "weights", "ready")


class Starts:
    """Which pods were told of; one look a service at a time."""

    def __init__(self) -> None:
        self._told: dict[Key, set[str]] = {}

    def observe(self, key: Key, pods: Iterable[Pod]) -> None:
        """Tell of the engines that are ready and were not told of yet; those that are gone are forgotten."""
        there = {pod.name: pod for pod in pods if pod.start is not None}
        told = self._told.get(key, set())
        for name, pod in there.items():
            if name not in told and pod.start is not None:
                for phase in PHASES:
                    START_SECONDS.labels(*key, pod.pool, phase).observe(getattr(pod.start, phase))
        self._told[key] = set(there)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._told.pop(key, None)
