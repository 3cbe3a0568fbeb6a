"""Where the weights and adapters of an engine are: its volumes, the init containers that fill them, and its variables."""

from dataclasses import dataclass

from steelyard.api.model import Adapter, HubSource, ObjectSource, OciSource, PvcSource
from steelyard.api.service import InferenceService
from steelyard.build import security
from steelyard.build.engines.parts import Body
from steelyard.build.meta import FIRST_PROCESS
from steelyard.decide.fingerprint import digest
from steelyard.decide.quantizing import order_of
from steelyard.decide.site import Site

MODELS = "/models"
ADAPTERS = "/adapters"
DEFAULT_REVISION = "main"
DEFAULT_NODE_CACHE = (
    "/var/lib/steelyard/models"  # as manifests are printed for people; the operator refuses without a setting
)
LOADER = "weights"  # the init container that brings them
LOADER_PROGRAM = "steelyard-loader"  # what it runs for a hub's files


@dataclass(frozen=True)
class Weights:
    """How an engine gets at a model: `location` is a path in the container, a hub's repository or an object store's URI."""

    location: str
    revision: str | None
    volumes: tuple[Body, ...]
    mounts: tuple[Body, ...]
    init_containers: tuple[Body, ...] = ()
    env: tuple[Body, ...] = ()


def weights(service: InferenceService, site: Site, role_name: str) -> Weights:
    """Find the model of a role: what a Job has quantized for it, else what the service names."""
    order = order_of(service, role_name)
    if order is None:
        return source_weights(service, site)
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": order.claim, "readOnly": True}}
    mount = {"name": "models", "mountPath": MODELS, "readOnly": True}
    return Weights(f"{MODELS}/{order.folder}", None, (volume,), (mount,))


def source_weights(service: InferenceService, site: Site, fetched: bool = False) -> Weights:
    """Find the model that the service names. A hub's files go to the volume `models`, which lives as long as the pod; with
    `fetched` an init container brings them there, for programs that fetch nothing themselves."""
    source = service.spec.model.source
    readable: Body = {"name": "models", "mountPath": MODELS, "readOnly": True}
    if isinstance(source, OciSource):
        fill = {
            "name": LOADER,
            "image": source.image,
            "imagePullPolicy": site.image_pull_policy,
            "command": ["cp", "-r", "/weights/.", f"{MODELS}/"],
            "volumeMounts": [{"name": "models", "mountPath": MODELS}],
            "securityContext": security.CONTAINER,
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        }
        volume = {"name": "models", "emptyDir": {}}
        return Weights(_inside(source.path), None, (volume,), (readable,), (fill,))
    if isinstance(source, PvcSource):
        volume = {"name": "models", "persistentVolumeClaim": {"claimName": source.claim, "readOnly": True}}
        return Weights(_inside(source.path), None, (volume,), (readable,))
    if isinstance(source, HubSource) and (fetched or service.spec.model.cache.kind != "none"):
        return _cached(service, source, site)
    volume, mount = {"name": "models", "emptyDir": {}}, {"name": "models", "mountPath": MODELS}
    if isinstance(source, HubSource):
        return Weights(source.repository, source.revision, (volume,), (mount,), env=_hub(service))
    if isinstance(source, ObjectSource):
        location = f"s3://{source.bucket}" + (f"/{source.path}" if source.path else "")
        return Weights(location, None, (volume,), (mount,), env=_object_store(service))
    raise ValueError(f"weights from {service.spec.model.uri} cannot be mounted; accept refuses such a service")


def _cached(service: InferenceService, source: HubSource, site: Site) -> Weights:
    """Have the loader see to it that the files are in the cache; the engine then reads a folder, and can change nothing there.

    Without a cache they are the pod's own. On nodes only the loader sees the whole folder of the installation: there it makes the
    namespace's own, as the user that it runs as. (A hostPath that the kubelet creates is root's, and fsGroup changes no
    hostPath.) The kubelet resolves `subPath` when a container starts, after the init containers, so the engine finds that
    folder and reaches no other.
    """
    cache = service.spec.model.cache
    revision = source.revision or DEFAULT_REVISION
    name = source.repository.replace("/", "--")
    key = f"{name}-{digest([source.repository, revision, list(cache.files)])}"
    readable: Body = {"name": "models", "mountPath": MODELS, "readOnly": True}
    volume: Body = {"name": "models"}
    folder = MODELS
    if cache.kind == "none":
        volume["emptyDir"] = {}
    elif cache.kind == "claim":
        volume["persistentVolumeClaim"] = {"claimName": cache.claim}
    else:
        folder = f"{MODELS}/{service.namespace}"
        volume["hostPath"] = {"path": site.node_cache or DEFAULT_NODE_CACHE, "type": "Directory"}
        readable["subPath"] = service.namespace
    fill = {
        "name": LOADER,
        "image": site.gateway_image,
        "imagePullPolicy": site.image_pull_policy,
        "command": [*FIRST_PROCESS, LOADER_PROGRAM],
        "args": [
            *(f"--repository={source.repository}", f"--revision={revision}", f"--cache={folder}", f"--key={key}"),
            *(f"--file={pattern}" for pattern in cache.files),
        ],
        "env": [*_secret(service, {"HF_TOKEN": "token", "HF_ENDPOINT": "endpoint"}, optional=("token", "endpoint"))],
        "volumeMounts": [{"name": "models", "mountPath": MODELS}],
        "securityContext": security.CONTAINER,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    return Weights(f"{MODELS}/{key}", None, (volume,), (readable,), (fill,))


def adapter_location(adapter: Adapter) -> str:
    """Name an adapter for an engine: a repository, or the path where `adapter_volumes` mounts it."""
    source = adapter.source
    if isinstance(source, HubSource):
        return source.repository
    return f"{ADAPTERS}/{source.claim}" + (f"/{source.path}" if source.path else "")


def adapter_volumes(service: InferenceService) -> tuple[tuple[Body, ...], tuple[Body, ...]]:
    """Give the volumes and mounts of the claims that hold adapters, one of each a claim."""
    sources = [adapter.source for adapter in service.spec.model.adapters]
    claims = sorted({source.claim for source in sources if isinstance(source, PvcSource)})
    volumes = tuple(
        {"name": f"steelyard-adapters-{index}", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        for index, claim in enumerate(claims)
    )
    mounts = tuple(
        {"name": f"steelyard-adapters-{index}", "mountPath": f"{ADAPTERS}/{claim}", "readOnly": True}
        for index, claim in enumerate(claims)
    )
    return volumes, mounts


def _hub(service: InferenceService) -> tuple[Body, ...]:
    keys = {"HF_TOKEN": "token", "HF_ENDPOINT": "endpoint"}
    return ({"name": "HF_HOME", "value": MODELS}, *_secret(service, keys))


def _object_store(service: InferenceService) -> tuple[Body, ...]:
    keys = {
        "AWS_ACCESS_KEY_ID": "accessKeyId",
        "AWS_SECRET_ACCESS_KEY": "secretAccessKey",
        "AWS_ENDPOINT_URL": "endpoint",
    }
    return _secret(service, keys)


def _secret(
    service: InferenceService, keys: dict[str, str], optional: tuple[str, ...] = ("endpoint",)
) -> tuple[Body, ...]:
    """Variables from the service's credentials. A Secret may lack the `optional` keys; without another the pod cannot start."""
    credentials = service.spec.model.credentials
    if credentials is None:
        return ()
    return tuple(
        {
            "name": variable,
            "valueFrom": {
                "secretKeyRef": {
                    "name": credentials.secret_name,
                    "key": key,
                    **({"optional": True} if key in optional else {}),
                }
            },
        }
        for variable, key in keys.items()
    )


def _inside(path: str | None) -> str:
    return f"{MODELS}/{path}" if path else MODELS
