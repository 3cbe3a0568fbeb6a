"""Getting a cluster by name: making one, attaching to one that runs, removing one."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from e2e.cluster import context, kind
from e2e.cluster.choose import Backend, choose, look
from e2e.cluster.cluster import Cluster, recorded_backend
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import processes
from e2e.cluster.local.cluster import LocalCluster
from e2e.cluster.local.up import bring_up

DEFAULT_NAME = "steelyard"
ACCELERATORS = 16


def create(
    name: str = DEFAULT_NAME,
    backend: Backend | str = Backend.AUTO,
    nodes: int = 1,
    accelerators: int = ACCELERATORS,
    archives: Sequence[Path] = (),
    confirm: Callable[[str], bool] = lambda question: False,
    console: Console | None = None,
) -> Cluster:
    """Make the cluster `name`, or return it if it runs, with the images of `archives` on its nodes.

    `confirm` answers whether an existing kubeconfig context may be used; without it none is used unless asked for by name.
    Raises `ClusterError` when that is not possible.
    """
    console = console or Console(stderr=True)
    wanted = Backend(backend)
    if wanted is Backend.AUTO and (known := recorded_backend(name)):
        if known == Backend.CONTEXT:  # the context that was agreed to, which need not be the current one any more
            return _equip(context.ContextCluster(name), accelerators, archives)
        wanted = Backend(known)
    facts = look(wanted)
    choice = choose(wanted, facts)
    if choice.ask and not confirm(f"Use the cluster of the current kubeconfig context {facts.context!r}?"):
        if wanted is Backend.CONTEXT:
            raise ClusterError("The current kubeconfig context was not agreed to; nothing was done.")
        choice = choose(wanted, facts, refused_context=True)
    if choice.backend is Backend.LOCAL:
        return bring_up(name, console, nodes, accelerators, archives)
    if choice.backend is Backend.KIND:
        made = kind.KindCluster(name)
        made.create(nodes)
        return _equip(made, accelerators, archives)
    return _equip(context.use(name), accelerators, archives)


def _equip(cluster: Cluster, accelerators: int, archives: Sequence[Path]) -> Cluster:
    cluster.advertise(accelerators)
    if archives:
        cluster.load(archives)
    return cluster


def attach(name: str = DEFAULT_NAME) -> Cluster:
    """Return the cluster `name` that `create` made earlier; raise `ClusterError` if there is none."""
    match recorded_backend(name):
        case "kind":
            return kind.KindCluster(name)
        case "context":
            return context.ContextCluster(name)
    cluster = LocalCluster(name)
    if not (processes.machines(name) and cluster.specification()):
        raise ClusterError(f"There is no cluster {name!r}: make it first (up --name {name}).")
    if not cluster.kubeconfig.exists():  # made from another checkout, or the output folder was emptied
        cluster.open_door()
    return cluster


def remove(name: str = DEFAULT_NAME) -> bool:
    """Remove the cluster `name` and whatever an earlier, broken attempt left; return whether there was anything."""
    if recorded_backend(name) == Backend.CONTEXT:
        return context.ContextCluster(name).down()
    removed = False
    if shutil.which("kind") and (recorded_backend(name) == Backend.KIND or _kind_has(name)):
        removed = kind.KindCluster(name).down()
    return LocalCluster(name).down() or removed


def _kind_has(name: str) -> bool:
    try:
        return kind.exists(name)
    except ClusterError:
        return False
