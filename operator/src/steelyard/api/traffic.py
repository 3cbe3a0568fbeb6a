"""How requests travel: the gateway in front, and the hand-off of KV state from prefill to decode."""

from typing import Annotated, Literal

from pydantic import Field

from steelyard.api.engine import ObjectKey
from steelyard.api.quantities import Duration, Quantity
from steelyard.api.record import Record

Connector = Literal["http", "nixl", "mooncake", "lmcache"]


class Transfer(Record):
    """How the KV state of a prompt reaches the decode pod."""

    connector: Connector | None = None
    """Program that moves the state. http: the decode pod pulls it from the prefill pod, for llama-cpp and simulated. nixl,
    mooncake, lmcache: that library, for engines on accelerators. Default: http for llama-cpp and simulated, nixl for the
    others."""
    on_failure: Literal["recompute", "fail"] = "recompute"
    """recompute: the decode pod reads the prompt itself. fail: the client gets an error. Default recompute."""
    network: Literal["tcp", "rdma"] = "tcp"
    """tcp: the pods' own network. rdma: the node's remote-memory devices, ten to a hundred times faster; the engine's
    container then gets the capability IPC_LOCK, which namespaces with the pod security profile restricted refuse. Default
    tcp."""
    rdma_resource: (
        Annotated[
            str,
            Field(
                min_length=3, max_length=253, pattern=r"^[a-z0-9][a-z0-9.-]*/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"
            ),
        ]
        | None
    ) = None
    """Resource of the nodes that counts their remote-memory devices; a pod takes one for each of its accelerators. Only with
    network rdma. Default rdma/ib."""


class Limits(Record):
    """What one gateway process takes on."""

    concurrent: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Most requests in one gateway process, queued or running; beyond it clients get status 429. Default 1000."""
    body_bytes: Quantity = Quantity("4Mi")
    """Largest request body in bytes; beyond it clients get status 413. Default 4Mi."""
    shed_when_late: bool = False
    """Whether a request that can no longer meet its objective is refused (429) instead of served last. Default false."""


class ApiKeys(Record):
    """Client authentication by keys."""

    secret_name: ObjectKey
    """Secret of the service's namespace whose key `keys` holds one API key a line."""


class Routing(Record):
    """The gateway in front of the engines."""

    order: Literal["shortestFirst", "fcfs"] = "shortestFirst"
    """Who goes to prefill first. shortestFirst: the fewest uncached prompt tokens; fcfs: first come, first served.
    Requests that can no longer meet their objective go last in either order. Default shortestFirst."""
    limits: Limits = Limits()
    """What one gateway process takes on."""
    affinity: Literal["none", "prefix", "kvEvents", "session"] = "prefix"
    """prefix: requests that begin alike prefer the replica that has seen the beginning. none: any replica. kvEvents (what
    the engines say they hold) and session (the client's own header) are not carried out yet and are refused. Default
    prefix."""
    replicas: Annotated[int, Field(ge=1, le=64)] = 2
    """Gateway processes. Default 2."""
    request_timeout: Duration = Duration("600s")
    """Longest life of a request, from its arrival to its last byte. Default 600s."""
    api_keys: ApiKeys | None = None
    """Client authentication. Default: none, every client of the network may ask."""
