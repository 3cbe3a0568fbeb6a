"""A file that is looked at again and again: settings, keys and pods are re-read when their content changes."""

from pathlib import Path


class WatchedFile:
    """Remembers the last content seen. A mounted ConfigMap changes by a swapped symlink, so the file's identity and time
    are compared first and its bytes after that; a file that is missing for a moment counts as unchanged."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._stamp: tuple[int, int, int] | None = None
        self._content: bytes | None = None

    def read(self) -> bytes:
        """Read the file now. Raises OSError where it cannot be read."""
        stat = self.path.stat()
        self._content = self.path.read_bytes()
        self._stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        return self._content

    def changed(self) -> bytes | None:
        """Return the new content if it differs from the last one seen, else None."""
        try:
            stat = self.path.stat()
            if (stat.st_mtime_ns, stat.st_ino, stat.st_size) == self._stamp:
                return None
            before = self._content
            content = self.read()
        except OSError:
            return None
        return content if content != before else None
