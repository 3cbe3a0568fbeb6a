"""Is the operator alive and ready? Facts gathered by the parts, judged here, served by `probes.py`.

kopf's own health check only shows that a loop turns. Three things can go wrong behind a turning loop, and each has a
fact here: work that is due is not started, a watch is silent while the objects change, the loop itself stands still.
"""

from dataclasses import dataclass, field

LOOP_LIMIT_SECONDS = 30.0
WAIT_LIMIT_SECONDS = 120.0
LAG_LIMIT_SECONDS = 120.0


@dataclass
class Health:
    """Facts in monotonic seconds; written on the loop and by workers, read by the probes' thread."""

    loop_turned: float
    oldest_wait: float = 0.0
    leading: bool = False
    watching: bool = False  # the kinds exist and the watches were started
    _lagging: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    _watched: dict[tuple[str, str], int] = field(default_factory=dict)

    def watched(self, key: tuple[str, str], generation: int) -> None:
        """A watch event told of this generation."""
        self._watched[key] = generation
        late = self._lagging.get(key)
        if late is not None and generation >= late[0]:
            self._lagging.pop(key, None)

    def read(self, key: tuple[str, str], generation: int, now: float) -> None:
        """A direct read found this generation; the watch should have told of it, or soon will."""
        if self._watched.get(key, 0) < generation and key not in self._lagging:
            self._lagging[key] = (generation, now)

    def forget(self, key: tuple[str, str]) -> None:
        """The object is gone."""
        self._lagging.pop(key, None)
        self._watched.pop(key, None)

    def complaints(self, now: float) -> list[str]:
        """Give what is wrong, one sentence each; empty means alive."""
        found = []
        if now - self.loop_turned > LOOP_LIMIT_SECONDS:
            found.append(f"the event loop has not turned for {now - self.loop_turned:.0f} s")
        if self.oldest_wait > WAIT_LIMIT_SECONDS:
            found.append(f"a service has been due for {self.oldest_wait:.0f} s")
        for key, (generation, since) in list(self._lagging.items()):
            if now - since > LAG_LIMIT_SECONDS:
                found.append(f"the watch has not told of generation {generation} of {'/'.join(key)}")
        return found
