"""A prefill pod that dies between the gateway's two calls, when its state is computed and nobody has fetched it yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
from steelyard.api.labels import DECODE, KV_PORT, PREFILL

from e2e.cluster import ClusterError
from e2e.vllm.serving import Service

DONE = "vllm:request_success_total", "finished_reason"
SIGNAL_CORE = """
import os, signal, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            name = file.read()
    except OSError:
        continue
    if name.startswith("VLLM::EngineCore"):
        os.kill(int(pid), getattr(signal, sys.argv[1]))
        break
else:
    sys.exit("no engine core runs here")
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)
except OSError:
    print("gone")
else:
    print("there")
"""


def without_its_prefill(pair: Service, prompt: str) -> httpx.Response:
    """What becomes of a prompt whose prefill pod is killed after it has answered.

    Decode's engine core is stopped meanwhile: its server takes the gateway's call, and the core sees the request only when the
    other pod is gone. The pair must have served before, so that the decode pod knows the other.
    """
    decode, prefill = pair.pod_name(DECODE), pair.pod(PREFILL)
    name, address = prefill["metadata"]["name"], prefill["status"]["podIP"]
    assert _look(pair, decode, address) == "there"
    before = sum(pair.samples(PREFILL, *DONE).values())
    pair.python(decode, SIGNAL_CORE, "SIGSTOP")
    with ThreadPoolExecutor(1) as pool:
        try:
            answer = pool.submit(pair.ask, prompt)
            pair.platform.wait_for("the prefill", lambda: sum(pair.samples(PREFILL, *DONE).values()) > before, 300)
            assert not answer.done()
            pair.platform.kubectl("delete", "pod", name, "-n", pair.namespace, "--force", "--grace-period=0")
            pair.platform.wait_for("its end", lambda: _look(pair, decode, address) == "gone", 120)
        finally:
            pair.python(decode, SIGNAL_CORE, "SIGCONT")
        return answer.result(timeout=900)


def _look(pair: Service, decode: str, address: str) -> str:
    try:
        return pair.python(decode, CONNECT, address, str(KV_PORT)).strip()
    except ClusterError:
        return ""  # the API server was busy
