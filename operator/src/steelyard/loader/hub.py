"""A model hub's HTTP protocol, as far as fetching needs it: what a revision consists of, and where each file's bytes are.

    GET ENDPOINT/api/models/OWNER/NAME/revision/REVISION?blobs=true
        → {"sha": commit, "siblings": [{"rfilename", "size", "blobId", "lfs": {"sha256", "size"}}]}
    GET ENDPOINT/OWNER/NAME/resolve/COMMIT/FILE       may redirect to a store, answers Range

Files under LFS have a SHA-256; of the others the hub tells git's own digest, SHA-1 over `blob SIZE\\0` and the bytes.
Small files are answered by a redirect to another path of the hub itself, so the token follows to the same scheme, host and
port. It goes to no store that the hub redirects to, and does not come back once it was dropped.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha1, sha256
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import PurePosixPath
from typing import IO, Any, Protocol
from urllib.parse import quote, urlsplit

from steelyard.loader.errors import LoaderError, Refused

TIMEOUT_SECONDS = 30.0  # of silence
LISTING_LIMIT = 64 << 20  # bytes of a listing
DEFAULT_PORTS = {"http": 80, "https": 443}
FORBIDDEN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Digest(Protocol):
    """A hash that is fed piece by piece."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class File:
    """One file of a revision: its path in the repository, its size in bytes, and the digest that its bytes must have."""

    path: str
    size: int
    digest: str  # "sha256:…" or "git:…"

    def hasher(self) -> Digest:
        """Begin the digest of this file's bytes."""
        if self.digest.startswith("sha256:"):
            return sha256()
        found = sha1(usedforsecurity=False)
        found.update(f"blob {self.size}\0".encode())
        return found

    def matches(self, hasher: Digest) -> bool:
        """Whether a digest that was fed all bytes is this file's."""
        return hasher.hexdigest() == self.digest.partition(":")[2]


@dataclass(frozen=True)
class Listing:
    """A revision: the commit that its name led to, and its files."""

    commit: str
    files: tuple[File, ...]


@dataclass(frozen=True)
class Hub:
    """One hub; `token` is shown to it and to nobody else."""

    endpoint: str
    token: str = ""

    def listing(self, repository: str, revision: str) -> Listing:
        """Ask what a revision consists of. Raises `Refused` for one that is not there or not for us, else `LoaderError`."""
        url = f"{self.endpoint}/api/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
        with self.open(url, f"{repository}@{revision}") as answer:
            body = answer.read(LISTING_LIMIT + 1)
        try:
            told = json.loads(body)
            return Listing(str(told["sha"]), tuple(_file(entry) for entry in told["siblings"]))
        except (ValueError, KeyError, TypeError) as error:
            raise LoaderError(f"the hub's listing of {repository}@{revision} cannot be read: {error!r}") from error

    def content(self, repository: str, commit: str, file: File, start: int) -> HTTPResponse:
        """Begin to read a file's bytes from `start`; the answer's status tells whether the hub goes along (206) or not (200)."""
        url = f"{self.endpoint}/{repository}/resolve/{commit}/{quote(file.path)}"
        return self.open(url, file.path, {"Range": f"bytes={start}-"} if start else {})

    def open(self, url: str, what: str, headers: Mapping[str, str] | None = None) -> HTTPResponse:
        """Send a request; raises `Refused` or `LoaderError` with `what` was asked for."""
        request = urllib.request.Request(url, headers={"User-Agent": "steelyard-loader", **(headers or {})})
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        try:
            answer: HTTPResponse = _OPENER.open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in FORBIDDEN:
                raise Refused(f"{what}: the hub says {error.code}; name a token in spec.model.credentials") from None
            if error.code == HTTPStatus.NOT_FOUND:
                raise Refused(f"{what}: the hub knows no such repository, revision or file") from None
            raise LoaderError(f"{what}: the hub says {error.code}") from None
        except (OSError, HTTPException) as error:
            raise LoaderError(f"{what}: {urlsplit(url).hostname} does not answer: {error}") from error
        return answer


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port that a URL leads to. Raises ValueError for a port that is no number."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, with the token only where the same server is asked again."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        follows = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.unredirected_hdrs.get("Authorization")
        try:
            same = _origin(newurl) == _origin(req.full_url)
        except ValueError:
            same = False
        if follows is not None and token is not None and same:
            follows.add_unredirected_header("Authorization", token)
        return follows


_OPENER = urllib.request.build_opener(Redirects)


def _file(entry: Mapping[str, Any]) -> File:
    lfs = entry.get("lfs") or {}
    size = int(lfs.get("size", entry["size"]))
    digest = f"sha256:{lfs['sha256']}" if lfs else f"git:{entry['blobId']}"
    return File(inside(str(entry["rfilename"])), size, digest)


def inside(path: str) -> str:
    """Give a path back that stays inside its folder. Raises `Refused` for any other: it is somebody else's text."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or "\0" in path or ".." in parts:
        raise Refused(f"the repository holds a file named {path!r}, which would lead outside its folder")
    return path
