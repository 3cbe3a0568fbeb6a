"""The cache: a folder of models, each filled once, by whoever comes first, and looked over by everybody after.

    CACHE/KEY/…          the files, as the repository has them; engines read here
    CACHE/KEY.json       what was checked: commit, and for each file its digest, size and time of change
    CACHE/KEY.part/…     bytes on their way
    CACHE/KEY.next       there while files are put in place: what the folder is to hold, as in KEY.json but for times
    CACHE/KEY.lock       held while somebody fills or looks it over (flock; the kernel lets go when the holder dies)

A file whose size and time are those that were recorded is as it was checked. Any other is hashed, and fetched again where its
digest is not the repository's. Files are replaced by renaming, so an engine that has one open goes on reading what it has.

A revision that moves (`main`) may change several files that belong together. They are put in place when all of them have come,
so a fetch that fails leaves the former revision whole. A loader that dies between two renamings leaves KEY.next and the rest
of the parts; the next one ends its work before anything else, without the hub.
"""

import fcntl
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.loader.choose import chosen
from steelyard.loader.errors import LoaderError, Refused
from steelyard.loader.hub import File, Hub, Listing
from steelyard.loader.transfer import digest, fetch

log = logging.getLogger("steelyard.loader")
PAUSES_SECONDS = (1.0, 3.0, 9.0)  # before a listing is asked for again
FOLDER_MODE = 0o750  # of a cache that is made here: on nodes, a namespace's folder is no other user's to read
TOLD_SHARE = 0.05  # of all bytes, between two lines that tell how far it is


@dataclass(frozen=True)
class Store:
    """One model's place in a cache."""

    cache: Path
    key: str

    @property
    def folder(self) -> Path:
        """Where engines read."""
        return self.cache / self.key

    @property
    def record(self) -> Path:
        return self.cache / f"{self.key}.json"

    @property
    def next(self) -> Path:
        return self.cache / f"{self.key}.next"

    @property
    def parts(self) -> Path:
        return self.cache / f"{self.key}.part"

    def make(self) -> None:
        """Make the cache's folder as this user: one that the kubelet makes for a mount is root's, and nobody could fill it."""
        self.cache.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)

    def fill(self, hub: Hub, repository: str, revision: str, patterns: Sequence[str]) -> int:
        """See to it that the chosen files of a revision are in place; gives how many had to be fetched.

        A hub that does not answer is no obstacle where everything is in place as it was checked.
        """
        with self._alone():
            self._finish(checked=False)
            known = _read(self.record)
            try:
                listing = _asked(hub, repository, revision)
            except Refused:
                raise
            except LoaderError as problem:
                if known and all(self._untouched(path, entry) for path, entry in known["files"].items()):
                    log.warning("%s; what is in the cache is used", problem)
                    return 0
                raise
            return self._bring(hub, repository, listing, chosen(listing.files, patterns), known)

    def _bring(
        self, hub: Hub, repository: str, listing: Listing, wanted: Sequence[File], known: Mapping[str, Any]
    ) -> int:
        entries = known.get("files", {})
        missing = [file for file in wanted if not self._in_place(file, entries.get(file.path))]
        keep_only(self.parts, {file.path for file in missing})
        self._room_for(missing)
        progress = _Progress(sum(file.size for file in missing))
        for file in missing:
            fetch(hub, repository, listing.commit, file, self.parts / file.path, progress)
        planned = {file.path: {"digest": file.digest, "size": file.size} for file in wanted}
        _write(self.next, {"commit": listing.commit, "files": planned})
        self._finish(checked=True)
        log.info("%s@%s is in place: %d files, %d fetched", repository, listing.commit, len(wanted), len(missing))
        return len(missing)

    def _finish(self, *, checked: bool) -> None:
        """Put in place what was planned, and record it; after a loader that died at it, only once its digests are right."""
        plan = _read(self.next)
        if plan:
            files = [File(path, entry["size"], entry["digest"]) for path, entry in plan["files"].items()]
            keep_only(self.folder, {file.path for file in files})
            for file in files:
                part, target = self.parts / file.path, self.folder / file.path
                if part.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    part.replace(target)
            known = _read(self.record).get("files", {})
            if checked or all(self._in_place(file, known.get(file.path)) for file in files):
                self._remember(plan["commit"], files)
            else:
                self.record.unlink(missing_ok=True)  # it tells of files that were replaced
            shutil.rmtree(self.parts, ignore_errors=True)
        self.next.unlink(missing_ok=True)

    def _in_place(self, file: File, entry: Mapping[str, Any] | None) -> bool:
        path = self.folder / file.path
        if entry is not None and entry["digest"] == file.digest and self._untouched(file.path, entry):
            return True
        if not path.is_file() or path.stat().st_size != file.size:
            return False
        log.info("%s is not as it was recorded; its digest is taken", file.path)
        return file.matches(digest(file, path))

    def _untouched(self, path: str, entry: Mapping[str, Any]) -> bool:
        try:
            seen = (self.folder / path).stat()
        except OSError:
            return False
        return bool(seen.st_size == entry["size"] and seen.st_mtime_ns == entry["changed"])

    def _remember(self, commit: str, files: Sequence[File]) -> None:
        entries = {}
        for file in files:
            seen = (self.folder / file.path).stat()
            entries[file.path] = {"digest": file.digest, "size": seen.st_size, "changed": seen.st_mtime_ns}
        _write(self.record, {"commit": commit, "files": entries})

    def _room_for(self, missing: Sequence[File]) -> None:
        begun = (
            sum(path.stat().st_size for path in self.parts.rglob("*") if path.is_file()) if self.parts.exists() else 0
        )
        need, free = sum(file.size for file in missing) - begun, shutil.disk_usage(self.cache).free
        if need > free:
            raise LoaderError(
                f"{need / 1e9:.1f} GB are to be fetched and the cache has {free / 1e9:.1f} GB left; give it more room"
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock; whoever waits says so once. Raises `LoaderError` where this user may not write."""
        try:
            self.make()
            held = (self.cache / f"{self.key}.lock").open("w")
        except PermissionError as error:
            raise LoaderError(
                f"user {os.geteuid()} may not write in the cache: {error}; a claim must be writable, and a node's folder"
                " (chart value nodeCache) must belong to that user"
            ) from error
        with held as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("another pod fills %s; waiting for it", self.key)
                fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)


def keep_only(folder: Path, wanted: set[str]) -> None:
    """Take away what an earlier revision had and this one has not; a folder that is left empty may be a file's name now."""
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder before the folder
        if path.is_dir():
            with suppress(OSError):
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in wanted:
            path.unlink()


def _read(path: Path) -> Mapping[str, Any]:
    """What was recorded; nothing where that cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found.get("files"), dict) else {}
    except (OSError, ValueError, AttributeError):
        return {}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a record, so that it is there whole or not at all."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w", encoding="utf-8") as out:
        json.dump(content, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)


def _asked(hub: Hub, repository: str, revision: str) -> Listing:
    """Ask for the listing, some times: a pod's network may be a moment younger than its program."""
    for pause in PAUSES_SECONDS:
        try:
            return hub.listing(repository, revision)
        except Refused:
            raise
        except LoaderError as problem:
            log.info("%s; asked again in %g s", problem, pause)
            time.sleep(pause)
    return hub.listing(repository, revision)


class _Progress:
    """Tells how far it is, now and then."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._told = total, 0, 0

    def __call__(self, size: int) -> None:
        self._done += size
        if self._done - self._told >= TOLD_SHARE * self._total:
            self._told = self._done
            log.info("%.0f %% of %.2f GB", min(100.0, 100 * self._done / max(1, self._total)), self._total / 1e9)
