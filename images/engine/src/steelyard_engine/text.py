"""From token bytes to text that may be sent: whole UTF-8 characters, and nothing that may be part of a stop string.

Tokens are byte strings that cut characters and stop strings anywhere. `TextStream` therefore keeps back an incomplete
character, and the longest tail that could still grow into a stop string, until the next bytes decide.
"""

import codecs
from collections.abc import Sequence


class TextStream:
    """The text of one answer. `stopped` is set once a stop string appeared; it and what follows are never given out."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stops)
        self._pending = ""
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """Take the bytes of one token and return the text that is certain now."""
        return self._advance(self._decoder.decode(piece))

    def close(self) -> str:
        """Return what was kept back, at the end of the answer; bytes of a cut character become U+FFFD."""
        text = self._advance(self._decoder.decode(b"", True)) + self._pending
        self._pending = ""
        return text

    def _advance(self, text: str) -> str:
        if self.stopped:
            return ""
        self._pending += text
        found = [place for stop in self._stops if (place := self._pending.find(stop)) >= 0]
        if found:
            self.stopped = True
            certain, self._pending = self._pending[: min(found)], ""
            return certain
        keep = max((_overlap(self._pending, stop) for stop in self._stops), default=0)
        certain = self._pending[: len(self._pending) - keep]
        self._pending = self._pending[len(certain) :]
        return certain


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest proper prefix of `stop` that `text` ends with."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
