"""Puts Steelyard on a cluster the way a platform team would: images loaded, charts installed by Helm, manifests applied."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from e2e import tools
from e2e.cache import REPOSITORY
from e2e.cluster import Cluster, create
from e2e.cluster import build as programs
from e2e.cluster.choose import Backend, choose, look
from e2e.errors import ToolError
from e2e.images.build import build_archives

SYSTEM_NAMESPACE = "steelyard-system"
CHARTS = REPOSITORY / "charts"
EXAMPLES = REPOSITORY / "docs" / "examples"
NODE_CACHE = "/run/steelyard-models"  # a folder of each node for models; who uses it makes it there
_LEAVING = (
    "custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,NODE:.spec.nodeName,DELETED:.metadata.deletionTimestamp,"
    "GRACE:.metadata.deletionGracePeriodSeconds,FINALIZERS:.metadata.finalizers,STATE:.status.containerStatuses[*].state"
)
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


class PlatformError(ToolError):
    """A step on the cluster failed or took too long; the message says what was seen last."""


@dataclass(frozen=True)
class Served:
    """A service that answers: its namespace, its name, and a base URL on this machine."""

    namespace: str
    name: str
    url: str


@dataclass(frozen=True)
class Platform:
    """A cluster with Steelyard on it."""

    cluster: Cluster

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """kubectl's output; `text` goes to its standard input."""
        return self.cluster.kubectl(*arguments, input=text)

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        """One object, or an empty dict when it is not there."""
        found = self.kubectl("get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "json")
        return dict(json.loads(found)) if found.strip() else {}

    def items(self, kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """Every object of a kind in a namespace, by label selector."""
        chosen = ["-l", selector] if selector else []
        return list(json.loads(self.kubectl("get", kind, "-n", namespace, *chosen, "-o", "json"))["items"])

    def helm(self, *arguments: str) -> str:
        """Helm's output; raises PlatformError with what it printed."""
        command = [str(tools.helm()), "--kubeconfig", str(self.cluster.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise PlatformError(f"helm {' '.join(arguments[:3])} failed:\n{(done.stdout + done.stderr).strip()}")
        return done.stdout

    def install(self, images: Mapping[str, str], values: Mapping[str, Any] | None = None) -> None:
        """Install or upgrade the CRDs and the operator; `images` maps a component to its reference."""
        wait = ["--create-namespace", "-n", SYSTEM_NAMESPACE, "--wait", "--timeout", "3m"]
        self.helm("upgrade", "--install", "steelyard-crds", str(CHARTS / "steelyard-crds"), *wait)
        charted = {name: _chart_image(images[name]) for name in ("operator", "gateway", "engine")}
        settings: dict[str, Any] = {"images": charted, "nodeCache": NODE_CACHE, **(values or {})}
        flags = [part for key, value in settings.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]
        try:
            self.helm("upgrade", "--install", "steelyard", str(CHARTS / "steelyard"), *wait, *flags)
        except PlatformError as error:
            pods = self.kubectl("get", "pods", "-n", SYSTEM_NAMESPACE)
            log = self.kubectl("logs", "deployment/steelyard-operator", "-n", SYSTEM_NAMESPACE, "--tail=20")
            raise PlatformError(f"{error}\n{pods}\nlast lines of the operator's log:\n{log}") from error

    def apply(self, manifest: Path | str, namespace: str) -> None:
        """Apply a manifest (a file or its text) in a namespace that is made when missing."""
        text = manifest.read_text() if isinstance(manifest, Path) else manifest
        self.make_namespace(namespace)
        self.kubectl("apply", "--server-side", "-n", namespace, "-f", "-", text=text)

    def make_namespace(self, name: str) -> None:
        """Make a namespace when it is missing; one that is being removed is waited for first."""
        self.wait_for(f"namespace {name} to be removed", lambda: self._phase(name) != "Terminating")
        if not self._phase(name):
            self.kubectl("create", "namespace", name)

    def _phase(self, namespace: str) -> str:
        return self.kubectl("get", "namespace", namespace, "--ignore-not-found", "-o", "jsonpath={.status.phase}")

    def wait_for(self, what: str, ready: Callable[[], Any], seconds: float = 180) -> Any:
        """Poll `ready` until it returns something true; PlatformError names `what` when it never did."""
        deadline = time.monotonic() + seconds
        while not (value := ready()):
            if time.monotonic() > deadline:
                raise PlatformError(f"waited {seconds:.0f} s for {what}")
            time.sleep(0.5)
        return value

    def wait_available(self, name: str, namespace: str, seconds: float = 300) -> dict[str, Any]:
        """The InferenceService once its condition Available is True for the present generation."""

        def available() -> dict[str, Any] | None:
            service = self.get("inferenceservice", name, namespace)
            return service if condition(service, "Available") == "True" and _observed(service) else None

        try:
            return dict(self.wait_for(f"InferenceService {namespace}/{name} to be Available", available, seconds))
        except PlatformError as error:
            seen = self.kubectl("get", "inferenceservice,deployment,pod,event", "-n", namespace)
            raise PlatformError(f"{error}; last seen:\n{seen}") from error

    def picture(self) -> str:
        """Nodes, services, pods, the latest events and the operator's last lines, for a person who reads a failed run."""
        asked = (
            ("get", "nodes", "-o", "wide"),
            ("get", "inferenceservices,deployments,pods", "-A", "-o", "wide", "--show-labels"),
            ("get", "pods", "-A", "-o", _LEAVING),
            ("get", "events", "-A", "--sort-by=.lastTimestamp"),
            ("logs", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=steelyard", "--prefix", "--tail=40"),
        )
        seen = []
        for words in asked:
            try:
                lines = self.kubectl(*words).splitlines()
            except ToolError as error:
                lines = [str(error)]
            seen.append("\n".join([f"$ kubectl {' '.join(words)}", *lines[-60:]]))
        return "\n\n".join(seen)

    @contextmanager
    def forward(self, target: str, port: int, namespace: str) -> Iterator[str]:
        """A base URL on this machine for a port of `target` (pod/NAME or svc/NAME), through the API server."""
        command = [
            str(tools.kubectl()),
            "--kubeconfig",
            str(self.cluster.kubeconfig),
            "-n",
            namespace,
            "port-forward",
            target,
            f":{port}",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                match = _FORWARDING.search(process.stdout.readline())
                if match is None:
                    process.terminate()
                    raise PlatformError(f"port-forward to {target} failed: {process.stderr.read().strip()}")
                yield f"http://127.0.0.1:{match.group(1)}"
            finally:
                process.terminate()


def condition(service: Mapping[str, Any], kind: str) -> str:
    """A condition's status, or `Unknown` when it is not there."""
    conditions = service.get("status", {}).get("conditions", [])
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "Unknown")


def _observed(service: Mapping[str, Any]) -> bool:
    return bool(service["status"].get("observedGeneration") == service["metadata"]["generation"])


def _chart_image(reference: str) -> dict[str, str]:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}


def prepare(backend: str, say: Callable[[str], None], console: Console) -> dict[str, Path]:
    """Build the images and, at the same time, a local cluster's programs, as far as the cache lacks them (half an hour from
    nothing); gives image reference → archive. Raises `ClusterError` before anything is built where no cluster can run."""
    wanted = Backend(backend)
    local = choose(wanted, look(wanted)).backend is Backend.LOCAL
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build_archives, say=say)
        if local:
            programs.ensure(console)
        return building.result()


def bring_up(
    name: str,
    backend: str,
    say: Callable[[str], None],
    console: Console,
    confirm: Callable[[str], bool] = lambda question: False,
    nodes: int = 1,
) -> Platform:
    """A cluster with Steelyard on it."""
    archives = prepare(backend, say, console)
    cluster = create(
        name=name, backend=backend, nodes=nodes, archives=list(archives.values()), console=console, confirm=confirm
    )
    platform = Platform(cluster)
    say("installing the charts steelyard-crds and steelyard")
    platform.install({component_of(reference): reference for reference in archives})
    return platform


def component_of(reference: str) -> str:
    """`operator` of `steelyard/operator:0123`."""
    return reference.partition("/")[2].partition(":")[0]
