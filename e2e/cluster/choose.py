"""Which backend to use: what was asked for, what this machine has, and what a person says."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum

from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import is_interactive


class Backend(StrEnum):
    """The values of --backend."""

    AUTO = "auto"
    CONTEXT = "context"
    KIND = "kind"
    LOCAL = "local"


@dataclass(frozen=True)
class Facts:
    """What counts for the choice: a reachable kubeconfig context, Docker, kind, root, and whether a person can be asked."""

    context: str | None
    docker: bool
    kind: bool
    root: bool
    interactive: bool


@dataclass(frozen=True)
class Choice:
    """The backend to use; with `ask`, only after a person has agreed to it."""

    backend: Backend
    ask: bool = False


def choose(wanted: Backend, facts: Facts, *, refused_context: bool = False) -> Choice:
    """Return the backend for `wanted`; raise `ClusterError` with the remedy if there is none.

    A cluster that somebody else made is used only after a question or by --backend context, so never by accident in CI.
    """
    if wanted is Backend.CONTEXT:
        if facts.context is None:
            raise ClusterError(
                "--backend context: the current kubeconfig context does not answer; check `kubectl get nodes`."
            )
        return Choice(Backend.CONTEXT, ask=facts.interactive)
    if wanted is Backend.KIND:
        if not (facts.docker and facts.kind):
            raise ClusterError("--backend kind needs a running Docker and the program `kind`; start or install them.")
        return Choice(Backend.KIND)
    if wanted is Backend.LOCAL:
        if not facts.root:
            raise ClusterError("--backend local makes namespaces and network interfaces: run as root (sudo).")
        return Choice(Backend.LOCAL)
    if facts.context is not None and facts.interactive and not refused_context:
        return Choice(Backend.CONTEXT, ask=True)
    if facts.docker and facts.kind:
        return Choice(Backend.KIND)
    if facts.root:
        return Choice(Backend.LOCAL)
    raise ClusterError(
        "No cluster can be made here: run as root on Linux (--backend local), or start Docker and install `kind` "
        "(--backend kind), or select a kubeconfig context that answers (--backend context)."
    )


def look(wanted: Backend) -> Facts:
    """Find out the facts of this machine that `choose` can need for `wanted`; the slow questions only where they count."""
    interactive = is_interactive()
    any_of_them = wanted is Backend.AUTO
    ask_context = wanted is Backend.CONTEXT or (any_of_them and interactive)
    ask_docker = wanted is Backend.KIND or any_of_them
    return Facts(
        context=current_context() if ask_context else None,
        docker=ask_docker and _succeeds("docker", "info"),
        kind=ask_docker and shutil.which("kind") is not None,
        root=os.geteuid() == 0,
        interactive=interactive,
    )


def current_context() -> str | None:
    """The name of the current kubeconfig context if its API server answers within a few seconds, else None."""
    if not _succeeds("kubectl", "get", "--raw", "/readyz", "--request-timeout=5s"):
        return None
    named = subprocess.run(["kubectl", "config", "current-context"], capture_output=True, text=True, check=False)
    return named.stdout.strip() or None


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=15, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
