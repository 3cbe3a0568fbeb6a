"""What the Job controller and a kubelet do of a Job that quantizes weights, as far as the operator looks at it."""

from __future__ import annotations

import copy
from typing import Any

from memory_api import MemoryApi

Body = dict[str, Any]


def the_job(api: MemoryApi) -> Body:
    """The only Job."""
    [body] = [body for (kind, _, _), body in api.objects.items() if kind == "Job"]
    return copy.deepcopy(body)


def running(restarted: int = 0) -> Body:
    """The status of a pod that computes."""
    container = {
        "name": "quantize",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        "restartCount": restarted,
    }
    return {"phase": "Running", "containerStatuses": [container]}


def ended(code: int, log: str = "", reason: str = "Error") -> Body:
    """The status of one whose program has ended with `log` as its last lines."""
    state = {"terminated": {"exitCode": code, "reason": reason, "message": log}}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"name": "quantize", "state": state}]}


def put_pod(api: MemoryApi, status: Body, number: int = 0, log: str | None = None) -> None:
    """Place the Job's pod of that number, with its log where it has one; later numbers are newer."""
    job = the_job(api)
    template, name = job["spec"]["template"], f"{job['metadata']['name']}-{number}"
    labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": job["metadata"]["name"]}
    meta = {"name": name, "namespace": job["metadata"]["namespace"], "labels": labels}
    meta["creationTimestamp"] = f"2026-01-01T00:00:{number:02}Z"
    api.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"], "status": status})
    if log is not None:
        api.logs[name, "quantize"] = log


def end_job(api: MemoryApi, condition: str, message: str = "") -> None:
    """What the Job controller says in the end: Complete or Failed."""
    told = {"type": condition, "status": "True", "message": message}
    api.edit("Job", the_job(api)["metadata"]["name"], {"status": {"conditions": [told]}})
