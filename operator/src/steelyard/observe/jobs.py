"""How far a Job is that quantizes weights, by its own status, its newest pod's, and the last line of that pod's log."""

import re
from collections.abc import Iterator, Sequence

from steelyard.api.labels import COMPONENT, QUANTIZE
from steelyard.api.reasons import Reason
from steelyard.decide.snapshot import Job
from steelyard.observe.client import Api, ApiError, Body
from steelyard.observe.pods import over, pod_of, seconds
from steelyard.observe.resources import POD

JOB_NAME = "batch.kubernetes.io/job-name"  # labels of a Job's pods
JOB_UID = "batch.kubernetes.io/controller-uid"
LAST_LINES = 5
WORDS_LIMIT = 800
LOG_BYTES = 4096
SANDBOX = "PodReadyToStartContainers"  # volumes are mounted and the network is there; images come after
VOLUMES = (
    ("persistentVolumeClaim", "claimName", "claim"),
    ("secret", "secretName", "Secret"),
    ("configMap", "name", "ConfigMap"),
    ("hostPath", "path", "folder of the node"),
)
_PROGRESS = re.compile(r"layer \d+ of \d+")


def of_a_job(body: Body) -> bool:
    """Whether a pod of the service is a Job's: it is no replica."""
    return bool((body["metadata"].get("labels") or {}).get(COMPONENT) == QUANTIZE)


def job_of(api: Api, body: Body, pods: Sequence[Body]) -> Job:
    """Read one Job; `pods` are the service's, those that are over included. The log is asked for only while it computes."""
    name = body["metadata"]["name"]
    status = body.get("status") or {}
    held = {c["type"]: c for c in status.get("conditions") or [] if c.get("status") == "True"}
    if "Complete" in held:
        return Job(name, done=True, failed=False, runs=False, words="")
    own = sorted(
        (pod for pod in pods if _made_by(pod, body)),
        key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""),
    )
    if failure := held.get("Failed") or held.get("FailureTarget"):
        said = next((words for pod in reversed(own) if (words := _last_words(pod))), "")
        return Job(name, False, failed=True, runs=False, words=said or str(failure.get("message") or ""))
    going = next((pod for pod in reversed(own) if not over(pod)), None)
    if going is None:
        since = None if own else seconds(body["metadata"].get("creationTimestamp"))
        return Job(name, False, False, False, _last_words(own[-1]) if own else "", podless_since=since)
    if trouble := pod_of(going).trouble:
        starts_again = trouble.reason is Reason.OUT_OF_MEMORY  # the Job makes another pod
        return Job(name, False, False, False, trouble.message, None if starts_again else trouble)
    if not _computes(going):
        return Job(name, False, False, False, _awaited(going))
    return Job(name, False, False, True, _progress(api, going))


def _made_by(pod: Body, job: Body) -> bool:
    """Whether a pod is a Job's, and not of a deleted one that had its name."""
    marks, meta = pod["metadata"].get("labels") or {}, job["metadata"]
    return marks.get(JOB_NAME) == meta["name"] and marks.get(JOB_UID) in (None, meta.get("uid"))


def _computes(pod: Body) -> bool:
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return any("running" in (one.get("state") or {}) for one in containers if one["name"] == QUANTIZE)


def _awaited(pod: Body) -> str:
    """What a pod that does not compute yet waits for, in the order in which the kubelet brings it about."""
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    held = {c["type"]: c.get("status") for c in status.get("conditions") or []}
    if held.get("PodScheduled") == "False":
        return "its pod waits for a node"
    if held.get(SANDBOX) == "False":
        mounted = ", ".join(_mounted(spec))
        return f"its pod waits for its network and volumes ({mounted})" if mounted else "its pod waits for its network"
    for kind, containers in (("initContainerStatuses", "initContainers"), ("containerStatuses", "containers")):
        images = {one["name"]: one.get("image", "") for one in spec.get(containers) or []}
        for one in status.get(kind) or []:
            state = one.get("state") or {}
            if kind == "initContainerStatuses" and "running" in state:
                return "its pod brings the weights"
            if (state.get("waiting") or {}).get("reason") == "ContainerCreating" and SANDBOX in held:
                return f"its pod waits for the image {images.get(one['name'], '')}".rstrip()
    return "its pod starts"


def _mounted(spec: Body) -> Iterator[str]:
    """Name what a pod's volumes need of its namespace."""
    for volume in spec.get("volumes") or []:
        for source, key, word in VOLUMES:
            if source in volume:
                yield f"{word} {volume[source].get(key, '')}"


def _progress(api: Api, pod: Body) -> str:
    """The last layer that the log tells of. A log that cannot be read, or tells of none yet, is nothing."""
    meta = pod["metadata"]
    try:
        log = api.log(POD, meta["namespace"], meta["name"], QUANTIZE, LAST_LINES, LOG_BYTES)
    except ApiError:
        return ""
    found = _PROGRESS.findall(log)
    return found[-1] if found else ""


def _last_words(pod: Body) -> str:
    """The end of the log of the container that ended badly, as the kubelet put it into the pod's status."""
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(kind) or []:
            ended = (one.get("state") or {}).get("terminated") or {}
            if ended.get("exitCode"):
                lines = [line.strip() for line in str(ended.get("message") or "").splitlines() if line.strip()]
                told = "\n".join(lines[-LAST_LINES:])[-WORDS_LIMIT:]
                return told or f"container {one['name']} ended with {ended.get('reason', '')} {ended['exitCode']}"
    return str(status.get("message") or "")
