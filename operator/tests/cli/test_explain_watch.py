"""`steelyard explain --watch` in a terminal: what changes in the service's status is on the screen soon after, until Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from operator_bodies import service_body, simulated

PATH = "/apis/serving.steelyard.dev/v1alpha1/namespaces/team-a/inferenceservices/chat"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
clusters: [{{name: x, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]
contexts: [{{name: x, context: {{cluster: x, user: x}}}}]
users: [{{name: x, user: {{}}}}]
"""
SECONDS = 60
# Whoever starts the tests in the background has them ignore interrupts, and with them what they start.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from steelyard.cli.main import main
main()
"""


def body(prefill: int) -> dict[str, Any]:
    counts = {"desired": prefill, "ready": prefill, "starting": 0, "draining": 0}
    return service_body(simulated({})) | {"status": {"ratio": f"{prefill}:1", "prefill": counts}}


@contextmanager
def served(answers: dict[str, Any]) -> Iterator[int]:
    """An API server that has one service, as `answers` holds it now; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            assert self.path == PATH
            data = json.dumps(answers["body"]).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()


def shown(screen: int, wanted: str) -> str:
    """Read what the terminal gets until `wanted` is in it."""
    seen, deadline = "", time.monotonic() + SECONDS
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([screen], [], [], 0.2)[0]:
            seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(screen, 65536).decode(errors="replace"))
    return seen


def test_a_change_is_shown_and_ctrl_c_ends_it_well(tmp_path: Path) -> None:
    answers = {"body": body(prefill=2)}
    with served(answers) as port:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(port=port))
        screen, terminal = pty.openpty()
        command = [sys.executable, "-c", PROGRAM, "explain", "chat", "-n", "team-a", "--watch"]
        command += ["--kubeconfig", str(kubeconfig)]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"}
        with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
            try:
                assert "ratio 2:1" in shown(screen, "EARLIER")
                answers["body"] = body(prefill=5)
                shown(screen, "ratio 5:1")
                process.send_signal(signal.SIGINT)
                assert process.wait(SECONDS) == 0
            finally:
                process.kill()
        os.close(terminal)
        os.close(screen)
