"""Two services in two namespaces: neither reaches the other's engines, whatever pod of theirs one asks from."""

from __future__ import annotations

import pytest
from steelyard.api.labels import COMPONENT, ENGINE_PORT, GATEWAY_METRICS_PORT, GATEWAY_PORT, KV_PORT, SERVICE

from e2e.platform import EXAMPLES, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME, EXAMPLE = "rehearsal", EXAMPLES / "simulated.yaml"
DIAL = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def dial(place):
    host, port = place.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
        return "open"
    except OSError:
        return "closed"
with ThreadPoolExecutor() as pool:
    print(*pool.map(dial, sys.argv[1:]))
"""


def test_two_services_cannot_reach_each_others_engines(platform: Platform, namespace: str) -> None:
    """From their own pods: an engine's requests and KV state are for its own service, a gateway's API is for everybody."""
    other = f"{namespace}-2"
    platform.make_namespace(other)
    try:
        for place in (namespace, other):
            platform.apply(EXAMPLE, place)
        for place in (namespace, other):
            platform.wait_available(NAME, place)

        def pod(place: str, part: str) -> tuple[str, str]:
            found = platform.items("pod", place, f"{SERVICE}={NAME},{COMPONENT}={part}")
            return found[-1]["metadata"]["name"], found[0]["status"]["podIP"]

        addresses = {
            (place, part): pod(place, part)[1] for place in (namespace, other) for part in ("engine", "gateway")
        }
        ports = {"engine": (ENGINE_PORT, KV_PORT), "gateway": (GATEWAY_PORT, GATEWAY_METRICS_PORT)}
        asked = [(place, part, port) for (place, part) in addresses for port in ports[part]]
        everywhere = {(place, "gateway", GATEWAY_PORT) for place in (namespace, other)}
        own = {"engine": {(namespace, "engine", KV_PORT)}, "gateway": {(namespace, "engine", ENGINE_PORT)}}

        def reached(part: str) -> set[tuple[str, str, int]]:
            places = [f"{addresses[place, to]}:{port}" for place, to, port in asked]
            said = platform.kubectl(
                "exec", "-n", namespace, pod(namespace, part)[0], "--", "python3", "-c", DIAL, *places
            )
            return {target for target, word in zip(asked, said.split(), strict=True) if word == "open"}

        for part, mine in own.items():
            right, seen = mine | everywhere, reached(part)
            for _ in range(60):  # policies hold a moment after a pod's birth
                if seen == right:
                    break
                seen = reached(part)
            assert seen == right, f"from a pod of part {part}"
    finally:
        platform.kubectl("delete", "namespace", other, "--wait=false")
