"""Port 8080: `/live`, `/ready` and `/metrics`, from a thread of its own, so that a stuck loop cannot answer for itself."""

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from prometheus_client import generate_latest

from steelyard.run.health import Health
from steelyard.run.metrics import REGISTRY

PORT = 8080
TEXT = "text/plain; charset=utf-8"


def serve(health: Health, port: int = PORT, clock: Callable[[], float] = time.monotonic) -> ThreadingHTTPServer:
    """Start answering on `port` (0: any free one) and give the server; `shutdown` ends it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def do_GET(self) -> None:
            path = self.path.split("?", 1)[0]
            if path == "/live":
                complaints = health.complaints(clock())
                self._answer(503 if complaints else 200, "; ".join(complaints) or "alive")
            elif path == "/ready":
                self._answer(*((200, "ready") if health.watching else (503, "not watching yet")))
            elif path == "/metrics":
                self._answer(200, generate_latest(REGISTRY).decode(), "text/plain; version=0.0.4; charset=utf-8")
            else:
                self._answer(404, "known: /live, /ready, /metrics")

        def _answer(self, status: int, text: str, kind: str = TEXT) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: probes come every few seconds."""

    server = ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, name="probes", daemon=True).start()
    return server
