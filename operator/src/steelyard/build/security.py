"""The pod security profile `restricted`, applied to every pod and container that the operator makes."""

from typing import Any

USER = 65532  # the images' own unprivileged user

POD: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}

CONTAINER: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}

# A sidecar is the user's program and may write into its own file system; the rest holds for it too.
SIDECAR: dict[str, Any] = {key: value for key, value in CONTAINER.items() if key != "readOnlyRootFilesystem"}


def container(capabilities: tuple[str, ...]) -> dict[str, Any]:
    """Give an engine's profile; remote memory access needs a capability (IPC_LOCK) that the profile restricted refuses."""
    if not capabilities:
        return CONTAINER
    return {**CONTAINER, "capabilities": {"drop": ["ALL"], "add": list(capabilities)}}
