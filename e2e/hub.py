"""A model hub on a few lines: the protocol of `steelyard/loader/hub.py`, and the faults that real ones have.

Standard library only, so that a pod can run it as well: `python hub.py FOLDER PORT [CUT [GO]]`, which prints each file that it
is asked for. Each folder FOLDER/OWNER/NAME is a repository whose only revision is `main`; its commit is a hash of all its files.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".gguf", ".bin")  # kept under LFS


@dataclass
class Repositories:
    """What a hub serves, the faults it has, and what it was asked."""

    folder: Path
    token: str = ""  # that must be shown
    cut: int = 0  # bytes after which every answer with a file breaks off; 0: never
    go: Path | None = None  # such answers stand still there until this file is there
    tells: bool = False  # each file that is asked for is printed
    store: str = ""  # address that files are redirected to
    moves: bool = False  # files are first redirected to another path of this hub, as small ones are
    demands: bool = False  # the token is demanded with files as well, as for private repositories
    down: bool = False
    ignores_ranges: bool = False
    damaged: int = 0  # answers that have a wrong byte, from now on
    surplus: bytes = b""  # that follow every file without being listed
    asked: list[str] = field(default_factory=list)  # files, with the byte that was asked for first
    tokens: list[str] = field(default_factory=list)  # that were shown with files
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def damage(self) -> bool:
        """Whether this answer is one of those."""
        with self._lock:
            self.damaged -= 1
            return self.damaged >= 0

    def listing(self, repository: str) -> dict[str, Any] | None:
        """The answer of the API about a repository."""
        root = self.folder / repository
        if not root.is_dir():
            return None
        siblings = []
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            content = path.read_bytes()
            entry: dict[str, Any] = {"rfilename": path.relative_to(root).as_posix(), "size": len(content)}
            entry["blobId"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            if path.suffix in LARGE:
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        commit = hashlib.sha1(json.dumps(siblings).encode()).hexdigest()
        return {"id": repository, "sha": commit, "siblings": siblings}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    served: Repositories

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        shown = self.headers.get("Authorization", "")
        if self.served.down:
            self._answer(503)
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", path):
            if self.served.token and shown != f"Bearer {self.served.token}":
                self._answer(401)
                return
            listing = self.served.listing(match[1])
            known = listing is not None and match[2] in ("main", listing["sha"])
            self._answer(200 if known else 404, json.dumps(listing).encode() if known else b"")
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve(?:-cache)?/[^/]+/(.+)", path):
            self.served.tokens.append(shown)
            if self.served.demands and shown != f"Bearer {self.served.token}":
                self._answer(401)
            elif self.served.moves and "/resolve/" in path:
                self._answer(307, headers={"Location": self.path.replace("/resolve/", "/resolve-cache/", 1)})
            elif self.served.store:
                self._answer(302, headers={"Location": f"{self.served.store}{self.path}"})
            else:
                self._file(self.served.folder / match[1] / match[2])
        else:
            self._answer(404)

    def _file(self, path: Path) -> None:
        if not path.is_file():
            self._answer(404)
            return
        content = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))
        start = int(asked[1]) if asked and not self.served.ignores_ranges else 0
        self.served.asked.append(f"{path.name}@{start}")
        if self.served.tells:
            print(self.served.asked[-1], flush=True)
        body = content[start:] + self.served.surplus
        if self.served.damage():
            body = bytes([body[0] ^ 1]) + body[1:]
        headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        self._answer(206 if start else 200, body, headers, cut=self.served.cut)

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, cut: int = 0) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if cut and len(body) > cut:
            self.wfile.write(body[:cut])
            self.wfile.flush()
            while self.served.go is not None and not self.served.go.exists():
                time.sleep(0.1)
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: scripts that use it have their own words."""


@contextmanager
def serving(served: Repositories, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve until the end of the block; gives the address."""
    server = ThreadingHTTPServer((host, port), type("Hub", (Handler,), {"served": served}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    here = Repositories(Path(sys.argv[1]), tells=True)
    if len(sys.argv) > 3:
        here.cut = int(sys.argv[3])
    if len(sys.argv) > 4:
        here.go = Path(sys.argv[4])
    ThreadingHTTPServer(("", int(sys.argv[2])), type("Hub", (Handler,), {"served": here})).serve_forever()
