"""The Job that quantizes weights once, into a folder of a claim (`decide/quantizing.py`).

Its pod brings the weights as an engine's would, runs `steelyard-quantize`, and is confined like every pod of ours. Where the folder
is there already, the loader fetches nothing and the program ends at once. A run that was evicted or ran out of memory is started
again and goes on after its last whole layer; what no repetition can help ends the Job at once. The end of its log is what the pod
says of a failure. A finished Job stays with the children in force, as what they were made from.
"""

from steelyard.api.labels import COMPONENT, QUANTIZE
from steelyard.api.service import InferenceService
from steelyard.build import security, template
from steelyard.build.engines.embedded import cores
from steelyard.build.engines.weights import LOADER_PROGRAM, source_weights
from steelyard.build.meta import FIRST_PROCESS, Body, child, pull_secrets
from steelyard.decide.quantizing import Order
from steelyard.decide.site import Site

QUANTIZED = "/quantized"
RETRIES = 3
HOPELESS = (1, 2)  # exit statuses of steelyard-quantize: the model or the recipe cannot be used, wrong arguments


def job(service: InferenceService, order: Order, site: Site) -> Body:
    """Build one order's Job. `decide/installation.py` has seen to it that the installation has an image for it."""
    model = source_weights(service, site, fetched=True)
    volumes = [*model.volumes, {"name": "tmp", "emptyDir": {}}]
    held = [volume for volume in volumes if volume.get("persistentVolumeClaim", {}).get("claimName") == order.claim]
    if held:  # a claim that one pod names twice is never mounted
        place = held[0]["name"]
        volumes[volumes.index(held[0])] = {"name": place, "persistentVolumeClaim": {"claimName": order.claim}}
    else:
        place = "quantized"
        volumes.append({"name": place, "persistentVolumeClaim": {"claimName": order.claim}})
    target = f"{QUANTIZED}/{order.folder}"
    made = {"name": place, "mountPath": QUANTIZED}
    loaders = [_unless_made(one, target, made) for one in model.init_containers]
    samples = ("--samples", str(order.samples)) if order.samples is not None else ()
    container = {
        "name": QUANTIZE,
        "image": site.quantize_image,
        "imagePullPolicy": site.image_pull_policy,
        "command": [*FIRST_PROCESS, "steelyard-quantize"],
        "args": [model.location, target, "--recipe", order.recipe, "--reuse", *samples],
        "env": [{"name": "OMP_NUM_THREADS", "value": str(cores(order.resources))}],
        "volumeMounts": [
            *model.mounts,
            made,
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 (a path in the container)
        ],
        "resources": template.amounts(order.resources),
        "securityContext": security.CONTAINER,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    body = child(service, "batch/v1", "Job", order.job, {COMPONENT: QUANTIZE})
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": security.POD,
        **({"initContainers": loaders} if loaders else {}),
        "containers": [container],
        "volumes": volumes,
        **pull_secrets(site),
    }
    body["spec"] = {
        "backoffLimit": RETRIES,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": QUANTIZE, "operator": "In", "values": list(HOPELESS)},
                },
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "template": {"metadata": {"labels": dict(body["metadata"]["labels"])}, "spec": spec},
    }
    return body


def _unless_made(container: Body, target: str, made: Body) -> Body:
    """An init container that fetches nothing where the target is there. A model's own image only copies its files."""
    if LOADER_PROGRAM not in container["command"]:
        return container
    mounts = [*container["volumeMounts"], {**made, "readOnly": True}]
    return {**container, "args": [*container["args"], f"--unless={target}"], "volumeMounts": mounts}
