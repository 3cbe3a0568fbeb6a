"""A folder of built things, keyed by content: what was built from equal inputs is never built twice.

An entry is made in a temporary folder beside its final place and renamed when complete, so that a reader never sees half of it
and a crash leaves only rubbish that the next build sweeps. Nothing may depend on an entry being there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def cache_root() -> Path:
    """The cache's folder: `STEELYARD_CACHE`, else `~/.cache/steelyard`."""
    return Path(os.environ.get("STEELYARD_CACHE") or Path.home() / ".cache" / "steelyard")


def content_key(parts: Iterable[str | bytes | Path]) -> str:
    """Twelve hexadecimal digits over texts and files, in order; a folder counts with every file's name and content in it."""
    digest = hashlib.sha256()
    for part in parts:
        for chunk in _chunks(part):
            digest.update(len(chunk).to_bytes(8, "big") + chunk)
    return digest.hexdigest()[:12]


def _chunks(part: str | bytes | Path) -> Iterator[bytes]:
    if isinstance(part, bytes):
        yield part
    elif isinstance(part, str):
        yield part.encode()
    elif part.is_dir():
        for file in sorted(p for p in part.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            yield str(file.relative_to(part)).encode()
            yield file.read_bytes()
    else:
        yield part.name.encode()
        yield part.read_bytes()


def cached(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """The folder `kind/key`; when it is not there, `build(folder)` fills a new one. Other processes wait for the same entry."""
    final = cache_root() / kind / key
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with locked(final.parent / f".{key}.lock"):
        if final.is_dir():
            return final
        unfinished = final.parent / f".{key}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        build(unfinished)
        unfinished.rename(final)
    return final


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` (made when missing); the kernel drops it when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
