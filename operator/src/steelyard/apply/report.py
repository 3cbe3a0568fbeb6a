"""The last word of the loop: one status write, only if it says something new, then events on transitions.

Status is written by server-side apply under the operator's field manager, so that a field which is no longer known
disappears. Events are best effort: a denied event must not fail a reconcile (B35).
"""

import hashlib
import logging
from datetime import UTC, datetime
from typing import Any

from steelyard.api.labels import FIELD_MANAGER, GROUP
from steelyard.api.reasons import EventReason
from steelyard.observe.client import Api, ApiError, Body, Missing
from steelyard.observe.resources import EVENT, INFERENCE_SERVICE

log = logging.getLogger(__name__)

NOTE_LIMIT = 1024  # the API server refuses longer notes


def write_status(api: Api, service: Body, status: dict[str, Any]) -> bool:
    """Write `status` if the service holds another one; gives whether that changed anything.

    A service that was deleted meanwhile needs no status. A schema that drops fields is told (B36, B37): without that,
    every reconcile would write again and nobody would know why.
    """
    if (service.get("status") or {}) == status:
        return False
    meta = service["metadata"]
    body = {
        "apiVersion": service["apiVersion"],
        "kind": service["kind"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "status": status,
    }
    try:
        written = api.apply(INFERENCE_SERVICE, body, FIELD_MANAGER, subresource="status")
    except Missing:
        return False
    if (written.get("status") or {}) != status:
        lost = sorted(name for name in status if status[name] != (written.get("status") or {}).get(name))
        log.error(
            "the installed CRD does not keep status fields %s: it is another version's; upgrade chart steelyard-crds",
            ", ".join(lost),
        )
    return bool(written["metadata"].get("resourceVersion") != meta.get("resourceVersion"))


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
