"""The last word of the loop: one status write, only if it says something new, then events on transitions.

Status is written by server-side apply, so that a field which is no longer known disappears. It has two authors, each with
a field manager and fields of its own: the reconcile, and the autoscaler at its own pace. Events are best effort: a denied
event must not fail a reconcile (B35).
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from steelyard.api.labels import FIELD_MANAGER, GROUP, SCALER_MANAGER
from steelyard.api.reasons import ConditionType, EventReason
from steelyard.observe.client import Api, ApiError, Body, Missing
from steelyard.observe.resources import EVENT, INFERENCE_SERVICE

log = logging.getLogger(__name__)

NOTE_LIMIT = 1024  # the API server refuses longer notes


SCALED_FIELDS = frozenset({"decision", "history", "objectives"})
SCALED_CONDITIONS = frozenset(
    map(str, (ConditionType.METRICS_FRESH, ConditionType.SCALING_LIMITED, ConditionType.OBJECTIVES_MET))
)


@dataclass(frozen=True)
class Author:
    """Who writes which part of a status: its field manager, and whether the autoscaler's fields are in the part."""

    manager: str
    scaled: bool
    rest: bool

    def part(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """Cut the author's own part out of a whole status."""
        found = {
            name: value for name, value in status.items() if name != "conditions" and self._has(name in SCALED_FIELDS)
        }
        conditions = [c for c in status.get("conditions") or () if self._has(c["type"] in SCALED_CONDITIONS)]
        return found | ({"conditions": conditions} if conditions else {})

    def _has(self, of_the_autoscaler: bool) -> bool:
        return self.scaled if of_the_autoscaler else self.rest


ALONE = Author(FIELD_MANAGER, scaled=True, rest=True)  # the reconcile, where there is no autoscaler
RECONCILE = Author(FIELD_MANAGER, scaled=False, rest=True)
AUTOSCALER = Author(SCALER_MANAGER, scaled=True, rest=False)


def release(api: Api, service: Body) -> None:
    """Take off what an autoscaler has written that does not run any more."""
    managers = {entry.get("manager") for entry in service["metadata"].get("managedFields") or ()}
    if SCALER_MANAGER in managers:
        _apply(api, service, {}, AUTOSCALER)


def write_status(api: Api, service: Body, status: dict[str, Any], author: Author = ALONE) -> bool:
    """Write `status` if the service's part of this author is another one; gives whether that changed anything.

    A service that was deleted meanwhile needs no status. A schema that drops fields is told (B36, B37): without that,
    every reconcile would write again and nobody would know why.
    """
    status = author.part(status)
    if _same(author.part(service.get("status") or {}), status):
        return False
    try:
        written = _apply(api, service, status, author)
    except Missing:
        return False
    kept = author.part(written.get("status") or {})
    if not _same(kept, status):
        lost = sorted(name for name in status if status[name] != kept.get(name))
        log.error(
            "the installed CRD does not keep status fields %s: it is another version's; upgrade chart steelyard-crds",
            ", ".join(lost),
        )
    return bool(written["metadata"].get("resourceVersion") != service["metadata"].get("resourceVersion"))


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Compare two parts; the order of conditions is the API server's, since several authors write them."""

    def keyed(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "conditions": {condition["type"]: condition for condition in part.get("conditions") or ()}}

    return keyed(one) == keyed(other)


def _apply(api: Api, service: Body, status: dict[str, Any], author: Author) -> Body:
    meta = service["metadata"]
    body = {
        "apiVersion": service["apiVersion"],
        "kind": service["kind"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "status": status,
    }
    return api.apply(INFERENCE_SERVICE, body, author.manager, subresource="status")


def tell(
    api: Api,
    service: Body,
    reason: EventReason,
    note: str,
    reporter: str,
    warning: bool = False,
    now: datetime | None = None,
) -> None:
    """Write one event about the service; what fails here is logged and forgotten."""
    meta = service["metadata"]
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    digest = hashlib.sha256(f"{meta['uid']}{reason}{note}{moment.timestamp()}".encode()).hexdigest()[:16]
    event = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{meta['name'][:200]}.{digest}", "namespace": meta["namespace"]},
        "eventTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if warning else "Normal",
        "reason": str(reason),
        "action": "Reconcile",
        "note": note if len(note) <= NOTE_LIMIT else note[: NOTE_LIMIT - 1] + "…",
        "reportingController": f"{GROUP}/operator",
        "reportingInstance": reporter[:128],
        "regarding": {
            "apiVersion": service["apiVersion"],
            "kind": service["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
    }
    try:
        api.create(EVENT, event, FIELD_MANAGER)
    except ApiError as failure:
        log.warning("event not written: %s", failure, extra={"event_reason": str(reason)})
