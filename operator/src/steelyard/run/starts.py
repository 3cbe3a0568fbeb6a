"""What is known of the starts of replicas from look to look, and told once a pod to the operator's own metrics.

A new operator knows nothing of the pods that are ready already (`observe/first_ready.py`), and tells nothing of them.
"""

from steelyard.observe.first_ready import Known
from steelyard.observe.snapshot import NOTHING_KNOWN, Observation
from steelyard.run.metrics import START_SECONDS

Key = tuple[str, str]  # namespace, name of the service
PHASES = ("scheduled", "pulled", "weights", "ready")


class Starts:
    """When pods were ready first, and which were told of; one look a service at a time."""

    def __init__(self) -> None:
        self._known: dict[Key, Known] = {}
        self._told: dict[Key, set[str]] = {}

    def known(self, key: Key) -> Known:
        """What the last look handed on."""
        return self._known.get(key, NOTHING_KNOWN)

    def observe(self, key: Key, seen: Observation) -> None:
        """Keep what a look hands on, and tell of the engines that were not told of yet; those that are gone are forgotten."""
        there = {pod.name: pod for pod in seen.snapshot.pods if pod.start is not None}
        told = self._told.get(key, set())
        for name, pod in there.items():
            if name not in told and pod.start is not None:
                for phase in PHASES:
                    START_SECONDS.labels(*key, pod.pool, phase).observe(getattr(pod.start, phase))
        self._told[key] = set(there)
        self._known[key] = seen.first_ready

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._told.pop(key, None)
        self._known.pop(key, None)

    def reset(self) -> None:
        """Another replica leads: what happens until this one looks again is seen by nobody here."""
        self._told.clear()
        self._known.clear()
