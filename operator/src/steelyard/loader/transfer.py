"""Bring one file's bytes: resumed where an earlier try ended, and checked before anybody reads them.

The bytes collect in a part file beside the cache. A connection that breaks is begun again from the last byte, by this
process or by the next one. Bytes whose digest is wrong, or more than were listed, are thrown away whole: nobody knows which
of them are wrong. Nothing is written beyond the listed size, whatever is sent.
"""

import os
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path

from steelyard.loader.errors import LoaderError, Refused
from steelyard.loader.hub import Digest, File, Hub

PIECE = 1 << 20  # bytes read at once
TRIES = 6  # in a row that bring nothing new
LONGEST_PAUSE_SECONDS = 30.0
MISMATCHES = 2  # times that other bytes came than were listed, after which it is no accident

Progress = Callable[[int], None]  # told bytes that have come


class _OtherBytes(Exception):
    """What came is not what was listed. The message says how it differs; it follows "COUNT times "."""


def fetch(
    hub: Hub,
    repository: str,
    commit: str,
    file: File,
    part: Path,
    progress: Progress,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Bring `file` to `part`, whole, right and on the disk. Raises `LoaderError` when it does not get on; the part stays."""
    part.parent.mkdir(parents=True, exist_ok=True)
    wrong = 0
    while True:
        try:
            _collect(hub, repository, commit, file, part, progress, pause)
            if file.matches(digest(file, part)):
                break
            raise _OtherBytes("other bytes came than its digest says")
        except _OtherBytes as difference:
            part.unlink()
            wrong += 1
            if wrong == MISMATCHES:
                raise LoaderError(f"{file.path}: {wrong} times {difference}; nothing of them is kept") from None
            pause(2.0**wrong)
    with part.open("rb") as written:
        os.fsync(written.fileno())


def _collect(
    hub: Hub, repository: str, commit: str, file: File, part: Path, progress: Progress, pause: Callable[[float], None]
) -> None:
    """Add to the part until it has the file's size. Raises `_OtherBytes` when more is sent."""
    tries = 0
    while True:
        have = part.stat().st_size if part.exists() else 0
        if have > file.size:  # of an earlier revision; `_append` writes no more than the size
            part.unlink()
            continue
        if have == file.size and part.exists():
            return
        problem = _append(hub, repository, commit, file, part, have, progress)
        if problem is None:
            continue
        tries = 0 if part.exists() and part.stat().st_size > have else tries + 1
        if tries == TRIES:
            raise problem
        pause(min(LONGEST_PAUSE_SECONDS, 2.0**tries))


def _append(
    hub: Hub, repository: str, commit: str, file: File, part: Path, have: int, progress: Progress
) -> LoaderError | None:
    """Read on from byte `have` until the end or a failure, which is given. Raises `_OtherBytes` at the first byte too many."""
    try:
        with hub.content(repository, commit, file, have) as answer:
            goes_on = answer.status == HTTPStatus.PARTIAL_CONTENT and _begins(answer.headers.get("Content-Range"), have)
            left = file.size - have if goes_on else file.size
            with part.open("ab" if goes_on else "wb") as out:
                while piece := answer.read(min(PIECE, left + 1)):
                    if len(piece) > left:
                        raise _OtherBytes(f"more bytes came than the {file.size} that the hub lists")
                    out.write(piece)
                    progress(len(piece))
                    left -= len(piece)
            if not have and not file.size:
                part.touch()
    except Refused:
        raise
    except LoaderError as problem:
        return problem
    except (OSError, HTTPException) as error:
        return LoaderError(f"{file.path}: the connection broke: {error!r}")
    size = part.stat().st_size
    return (
        None if size >= file.size else LoaderError(f"{file.path}: the answer ended after {size} of {file.size} bytes")
    )


def _begins(content_range: str | None, at: int) -> bool:
    """Whether `Content-Range: bytes 100-199/200` begins where it was asked to."""
    return content_range is not None and content_range.startswith(f"bytes {at}-")


def digest(file: File, path: Path) -> Digest:
    """Hash what lies at `path` as the file's digest is made."""
    found = file.hasher()
    with path.open("rb") as source:
        while piece := source.read(PIECE):
            found.update(piece)
    return found
