"""The world of one service at one moment, frozen: all that a decision may look at.

`observe/snapshot.py` fills it from the API server. Bodies that only pass through (children, the service itself) stay
plain dictionaries and must not be changed by whoever reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.reasons import Reason

Body = Mapping[str, Any]


class Weights(StrEnum):
    """How far a pod's weights are."""

    LOADED = "loaded"
    LOADING = "loading"
    FAILED = "failed"


@dataclass(frozen=True)
class Trouble:
    """What keeps a pod or a Deployment from getting ready, in the words of the cluster."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Start:
    """How long a replica took to start, in seconds by phase."""

    scheduled: float  # creation → a node found
    pulled: float  # images, volumes and the sandbox
    weights: float  # init container that brings them; 0 where there is none
    ready: float  # the engine's process → ready
    created: float  # when it began, in unix seconds

    @property
    def total(self) -> float:
        """From creation to ready."""
        return self.scheduled + self.pulled + self.weights + self.ready


@dataclass(frozen=True)
class Pod:
    """One pod of the service: an engine, or a gateway (`pool` and `role` are empty)."""

    name: str
    pool: str
    role: str  # what it does now; empty for gateways and while an engine is between roles
    ready: bool
    terminating: bool
    weights: Weights  # of an engine
    trouble: Trouble | None = None
    revision: str = ""  # of the template it was made from
    kv_group: str = ""
    ready_since: float | None = None  # unix seconds
    start: Start | None = None  # of an engine that somebody saw get ready, and that was never restarted


@dataclass(frozen=True)
class Job:
    """A Job that quantizes weights, by its name."""

    name: str
    done: bool
    failed: bool
    runs: bool  # its pod computes
    words: str  # how far it is, what it waits for, or the last lines of its log where it failed; may be empty
    trouble: Trouble | None = None  # what keeps its pod from starting
    podless_since: float | None = None  # unix seconds; None: it has a pod, or had one


@dataclass(frozen=True)
class Deployment:
    """One Deployment of the service, or LeaderWorkerSet: a pool of engines, or the gateway (`pool` is empty)."""

    name: str
    pool: str
    replicas: int  # what its spec asks for
    replicas_written: bool  # somebody has set the number; False: it is the API server's default
    ready: int
    updated: int
    observed: bool  # its controller has seen the latest spec
    revision: str  # of the pods that are wanted
    trouble: Trouble | None = None
    grouped: bool = False  # a LeaderWorkerSet: its replicas are several pods, of which the leaders are seen


@dataclass(frozen=True)
class Revision:
    """The children as they were rendered for one spec; stored in a ControllerRevision."""

    name: str
    number: int
    spec_hash: str
    children: tuple[Body, ...]


@dataclass(frozen=True)
class Snapshot:
    """Everything about one service: the object, the hardware it names, and what runs for it."""

    service: Body
    accelerators: Mapping[str, Accelerator | None]  # by name; None: there is no such object
    deployments: tuple[Deployment, ...] = ()
    pods: tuple[Pod, ...] = ()
    revisions: tuple[Revision, ...] = ()  # oldest first
    jobs: tuple[Job, ...] = ()

    @property
    def current(self) -> Revision | None:
        """The children that are in force: those rendered last."""
        return self.revisions[-1] if self.revisions else None

    def deployment_of(self, pool: str) -> Deployment | None:
        """Find the Deployment of a pool; the empty pool is the gateway."""
        return next((d for d in self.deployments if d.pool == pool), None)
