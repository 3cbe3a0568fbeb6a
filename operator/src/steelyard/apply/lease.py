"""Leadership by a `coordination.k8s.io/Lease`: two replicas run, one works.

The decision is a pure function of the lease as it was read and of this replica's own monotonic clock. Clocks of other
machines are never compared: a foreign lease is over when its record has not changed for its whole duration, counted
from the moment when *we* first saw that record (client-go's rule). A leader that could not renew for `RENEW_DEADLINE`
stops writing before anybody else may start, since the deadline is shorter than the duration.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from steelyard.observe.client import Api, ApiError, Body, Conflict
from steelyard.observe.resources import LEASE

DURATION_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10
STEP_SECONDS = 2


class Step(Enum):
    """What to do with the lease now."""

    CREATE = "create"  # there is none
    TAKE = "take"  # it is free or over
    RENEW = "renew"  # it is ours
    WAIT = "wait"  # somebody else holds it


@dataclass(frozen=True)
class Sighting:
    """A record of the lease (holder and renewal time, opaque) and when it was first seen, in monotonic seconds."""

    record: tuple[str, str]
    first_seen: float


def record_of(lease: Body) -> tuple[str, str]:
    spec = lease.get("spec") or {}
    return (spec.get("holderIdentity") or "", spec.get("renewTime") or "")


def sight(previous: Sighting | None, lease: Body, now: float) -> Sighting:
    """Remember the record; an unchanged one keeps the moment when it was first seen."""
    record = record_of(lease)
    return previous if previous is not None and previous.record == record else Sighting(record, now)


def choose(lease: Body | None, sighting: Sighting | None, me: str, now: float) -> Step:
    """Decide by this table, first row that holds:

    | lease | step |
    |---|---|
    | none | create |
    | held by me | renew |
    | released (no holder) | take |
    | its record unchanged for its duration | take |
    | else | wait |
    """
    if lease is None or sighting is None:
        return Step.CREATE
    holder = sighting.record[0]
    if holder == me:
        return Step.RENEW
    if not holder:
        return Step.TAKE
    duration = float((lease.get("spec") or {}).get("leaseDurationSeconds") or DURATION_SECONDS)
    return Step.TAKE if now - sighting.first_seen >= duration else Step.WAIT


class Elector:
    """Holds or seeks one lease; `step` is called every `STEP_SECONDS` from one thread."""

    def __init__(self, api: Api, namespace: str, name: str, me: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._me = me
        self._sighting: Sighting | None = None
        self._held_until = float("-inf")

    def leading(self, now: float) -> bool:
        """Whether this replica may write at `now` (monotonic seconds)."""
        return now < self._held_until

    def step(self, now: float) -> bool:
        """Read the lease, do what `choose` says and give whether this replica leads.

        An unreachable API server or a lost race changes nothing: leadership runs out by itself.
        """
        try:
            lease = self._api.find(LEASE, self._namespace, self._name)
            if lease is not None:
                self._sighting = sight(self._sighting, lease, now)
            wanted = choose(lease, self._sighting, self._me, now)
            if wanted is Step.WAIT:
                self._held_until = float("-inf")
                return False
            written = self._write(lease, wanted)
        except Conflict:
            return self.leading(now)
        except ApiError:
            return self.leading(now)
        self._sighting = Sighting(record_of(written), now)
        self._held_until = now + RENEW_DEADLINE_SECONDS
        return True

    def release(self, now: float) -> None:
        """Give the lease up, so that the other replica need not wait for its end; best effort."""
        if not self.leading(now):
            return
        self._held_until = float("-inf")
        try:
            lease = self._api.find(LEASE, self._namespace, self._name)
            if lease is not None and record_of(lease)[0] == self._me:
                lease["spec"]["holderIdentity"] = ""
                self._api.replace(LEASE, lease, self._me)
        except ApiError:
            return

    def _write(self, lease: Body | None, wanted: Step) -> Body:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = dict((lease or {}).get("spec") or {})
        spec |= {"holderIdentity": self._me, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": now}
        if wanted is not Step.RENEW:
            spec |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        if lease is None:
            meta = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": meta, "spec": spec}
            return self._api.create(LEASE, body, self._me)
        return self._api.replace(LEASE, {**lease, "spec": spec}, self._me)
