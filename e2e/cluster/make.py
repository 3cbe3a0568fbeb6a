"""Getting a cluster by name: making one, attaching to one that runs, removing one."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from e2e.cluster import context, kind
from e2e.cluster.choose import Backend, choose, look
from e2e.cluster.cluster import Cluster, recorded_backend
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import backend as local
from e2e.cluster.local import processes

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
        wanted, confirm = Backend(known), lambda question: True
    facts = look(wanted)
    choice = choose(wanted, facts)
    if choice.ask and not confirm(f"Use the cluster of the current kubeconfig context {facts.context!r}?"):
        if wanted is Backend.CONTEXT:
            raise ClusterError("The current kubeconfig context was not agreed to; nothing was done.")
        choice = choose(wanted, facts, refused_context=True)
    if choice.backend is Backend.LOCAL:
        return local.bring_up(name, console, nodes, accelerators, archives)
    cluster: Cluster
    if choice.backend is Backend.KIND:
        cluster = kind.KindCluster(name)
        cluster.create(nodes)
    else:
        cluster = context.use(name)
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
    cluster = local.LocalCluster(name)
    if not (processes.machines(name) and cluster.specification()):
        raise ClusterError(f"There is no cluster {name!r}: make it first (up --name {name}).")
    if not cluster.kubeconfig.exists():  # made from another checkout, or the output folder was emptied
        cluster.open_door()
    return cluster


def remove(name: str = DEFAULT_NAME) -> bool:
    """Remove the cluster `name` and whatever an earlier, broken attempt left; return whether there was anything."""
    known = recorded_backend(name)
    if known == "context":
        context.ContextCluster(name).down()
    elif shutil.which("kind") and (known == "kind" or _kind_has(name)):
        kind.KindCluster(name).down()
        known = "kind"
    return local.take_down(name) or known is not None


def _kind_has(name: str) -> bool:
    try:
        return kind.exists(name)
    except ClusterError:
        return False
