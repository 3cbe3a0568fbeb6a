"""The values of our charts as types: `values.yaml` with its comments and `values.schema.json` are made from them.

A field's docstring is the comment in `values.yaml` and the description in the schema. Unknown values are refused, so a
misspelt one never passes in silence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from steelyard.api.engine import EngineName
from steelyard.api.model import ModelSpec
from steelyard.api.quantities import Duration, Quantity
from steelyard.api.record import Free, Record
from steelyard.api.resources import Amounts, Resources
from steelyard.api.roles import Labels, Name

Repository = Annotated[str, Field(min_length=1, pattern=r"^[a-z0-9]([a-z0-9._/:-]*[a-z0-9])?$")]
Tag = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")]
Digest = Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]


class Image(Record):
    """One image, as repository:tag@digest."""

    repository: Repository
    """Name of the image, without registry."""
    tag: Tag = ""
    """Tag of the image. Empty: the chart's appVersion."""
    digest: Digest = ""
    """Digest of the image, sha256:…; where given it decides, whatever the tag says."""


class OptionalImage(Image):
    """One image, as repository:tag@digest, or none."""

    repository: Annotated[str, Field(pattern=r"^([a-z0-9]([a-z0-9._/:-]*[a-z0-9])?)?$")]
    """Name of the image, without registry. Empty: there is none."""


class Images(Record):
    """The images of the operator and of what it makes."""

    operator: Image = Image(repository="steelyard/operator")
    """The operator."""
    gateway: Image = Image(repository="steelyard/gateway")
    """The gateway in front of each service."""
    engine: Image = Image(repository="steelyard/engine")
    """The embedded engine (llama-cpp and simulated)."""
    quantize: OptionalImage = OptionalImage(repository="steelyard/quantize")
    """What Jobs run that quantize weights (spec.quantization.source Job). With no image such services are refused."""
    engines: Annotated[dict[EngineName, str], Field(max_length=8)] = Field(default_factory=dict)
    """Whole names of the images of other engines, by spec.engine.name, such as vllm: vllm/vllm-openai:v0.32.0. The registry
    above is not put before them. Empty: the projects' own images of the versions that this release writes flags for;
    tensorrt-llm has none, so it needs one here or in each service's spec.engine.image."""


class PullSecret(Record):
    """A Secret with registry credentials."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the Secret."""


class Install(Record):
    """Whether a part is installed."""

    install: bool = True
    """Whether it is installed."""


class Prometheus(Record):
    """Where the operator reads what engines and gateways measure."""

    url: Annotated[str, Field(pattern=r"^(https?://[^\s?#]+)?$")] = ""
    """Address of Prometheus, or of what speaks its HTTP API, such as http://prometheus.monitoring.svc:9090. Empty: the
    operator takes no decisions on replicas and only keeps them within min and max."""
    secret: Annotated[str, Field(pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")] = ""
    """Name of a Secret in the release's namespace that is mounted at /etc/prometheus-access, for the files below.
    Empty: none."""
    bearer_token_file: str = ""
    """File with the bearer token of every query, such as /etc/prometheus-access/token, or the operator's own
    /var/run/secrets/kubernetes.io/serviceaccount/token. Empty: no token."""
    username: Annotated[str, Field(max_length=256, pattern=r"^[^:]*$")] = ""
    """Name that every query gives with the password below, where Prometheus asks for one (basic authentication). Empty:
    none."""
    password_file: str = ""
    """File with that password, such as /etc/prometheus-access/password. Goes with a username, and not with a token."""
    ca_file: str = ""
    """File with the certificate authorities of Prometheus, such as /etc/prometheus-access/ca.crt. Empty: the system's."""


class Monitoring(Record):
    """Objects for an installed Prometheus operator and Grafana."""

    pod_monitors: bool = False
    """Whether PodMonitors are installed, by which engines, gateways and the operator are scraped every 5 s. Needs the kind
    PodMonitor (monitoring.coreos.com); without it, scrape the pods labelled app.kubernetes.io/managed-by=steelyard and the
    operator's yourself."""
    rules: bool = False
    """Whether a PrometheusRule with the alerts is installed (rules/steelyard.yaml of this chart, which Prometheus also reads
    by itself). Needs the kind PrometheusRule (monitoring.coreos.com)."""
    runbooks: Annotated[str, Field(pattern=r"^(https?://\S+[^/\s])?$")] = ""
    """Address under which you keep the pages of docs/runbooks; alerts then carry runbook_url with it. Empty: they name the
    page in the project."""
    dashboards: bool = False
    """Whether dashboards for Grafana are installed, as ConfigMaps with the label grafana_dashboard: "1", which Grafana's
    sidecar looks for."""
    labels: Labels = Field(default_factory=dict)
    """Labels of the PodMonitors and the PrometheusRule, by which your Prometheus selects them, such as release:
    kube-prometheus-stack."""


class Account(Record):
    """The operator's ServiceAccount."""

    annotations: Labels = Field(default_factory=dict)
    """Annotations, for a cloud's workload identity."""


class SteelyardValues(Record):
    """Values of the chart `steelyard`."""

    registry: Annotated[str, Field(pattern=r"^([a-z0-9]([a-z0-9._/:-]*[a-z0-9])?)?$")] = ""
    """Registry, with or without a path, put before every image below. Empty: the node's default registry."""
    images: Images = Images()
    """The images of the operator and of what it makes."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the node pulls images, for the operator and for what it makes."""
    image_pull_secrets: tuple[PullSecret, ...] = ()
    """Secrets with registry credentials, for the operator's pods and for those it makes; the latter need them in their own
    namespaces.
    """
    replicas: Annotated[int, Field(ge=1, le=5)] = 2
    """Pods of the operator; one of them leads, the others wait."""
    watch_namespaces: tuple[Name, ...] = ()
    """Namespaces whose services this operator serves; it then has no rights in others, and they must exist.
    Empty: all namespaces."""
    node_cache: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._-]+)+$")] | None = None
    """Folder of every node in which services may keep models (spec.model.cache.kind node), such as /var/lib/steelyard/models.
    Make it on every node that may run an engine, for the user 65532 alone (install -d -o 65532 -g 65532 -m 0750 FOLDER);
    where it is missing pods wait for it (event FailedMount). Each namespace gets a folder of its own there: init containers
    make and fill it, engines mount no other, and only to read. It is a hostPath volume, which the pod security levels
    restricted and baseline refuse, so such services need a namespace at level privileged; whoever may make pods there, or
    run commands in them, can reach the files of the node. null: services may not."""
    prometheus_namespace: Name | None = None
    """Namespace that may scrape the metrics of operator, gateways and engines. null: none may."""
    prometheus: Prometheus = Prometheus()
    """Where the operator reads what engines and gateways measure."""
    tick_seconds: Annotated[float, Field(ge=1, le=300)] = 5
    """Seconds from one decision on replicas to the next."""
    monitoring: Monitoring = Monitoring()
    """Objects for an installed Prometheus operator and Grafana."""
    resources: Resources = Resources(
        requests={"cpu": Quantity("50m"), "memory": Quantity("128Mi")}, limits={"memory": Quantity("512Mi")}
    )
    """Resources of the operator."""
    pod_security_context: Free = Free.read(
        {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    )
    """Security context of the operator's pods. Set a field to null to remove it, as clusters ask that assign user ids."""
    security_context: Free = Free.read(
        {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    )
    """Security context of the operator's container."""
    pod_annotations: Labels = Field(default_factory=dict)
    """Annotations to add to the operator's pods."""
    pod_labels: Labels = Field(default_factory=dict)
    """Labels to add to the operator's pods."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels of the nodes the operator may run on."""
    tolerations: tuple[Free, ...] = ()
    """Tolerations of the operator's pods."""
    affinity: Free = Free()
    """Affinity of the operator's pods."""
    priority_class_name: str = ""
    """Priority class of the operator's pods. Empty: the cluster's default."""
    service_account: Account = Account()
    """The operator's ServiceAccount."""
    accelerators: Install = Install()
    """The hardware catalogue, as Accelerator objects (cluster-wide, so one release of a cluster installs it)."""
    user_roles: Install = Install()
    """ClusterRoles that add our kinds to the cluster's view, edit and admin roles (one release of a cluster installs them)."""
    network_policy: Install = Install()
    """A NetworkPolicy that lets only the Prometheus namespace reach the operator's metrics."""
    pod_disruption_budget: Install = Install()
    """A disruption budget that keeps one pod of the operator, where there are several."""


class DemoRole(Record):
    """Replicas of one role of the sample service."""

    min: Annotated[int, Field(ge=1, le=1000)] = 1
    """Fewest replicas."""
    max: Annotated[int, Field(ge=1, le=1000)] = 2
    """Most replicas."""
    requests: Amounts = Field(default_factory=lambda: {"cpu": Quantity("200m"), "memory": Quantity("400Mi")})
    """Resources each replica must have."""
    limits: Amounts = Field(default_factory=lambda: {"cpu": Quantity("1"), "memory": Quantity("1Gi")})
    """Resources each replica may use at most."""


class DemoObjectives(Record):
    """Latency objectives of the sample service."""

    time_to_first_token: Duration = Duration("2s")
    """Longest time to the first token."""
    time_per_output_token: Duration = Duration("200ms")
    """Longest mean time per output token."""


class DemoValues(Record):
    """Values of the chart `steelyard-demo`."""

    name: Name = "smollm2"
    """Name of the InferenceService."""
    topology: Literal["Disaggregated", "Aggregated"] = "Disaggregated"
    """Disaggregated: prefill and decode pods. Aggregated: pods that do both; they take the values of decode."""
    model: ModelSpec = ModelSpec(uri="oci://steelyard/model-smollm2:0.1.2", served_name="smollm2")
    """The model that is served."""
    engine: EngineName = "llama-cpp"
    """The program that computes tokens."""
    accelerator: Name = "cpu"
    """Name of the Accelerator."""
    objectives: DemoObjectives = DemoObjectives()
    """Latency objectives."""
    prefill: DemoRole = DemoRole()
    """Replicas that read prompts."""
    decode: DemoRole = DemoRole()
    """Replicas that write answers."""
    gateways: Annotated[int, Field(ge=1, le=64)] = 1
    """Gateway processes."""


class NoValues(Record):
    """Values of the chart `steelyard-crds`: there is nothing to choose."""


CHARTS: dict[str, type[Record]] = {
    "steelyard": SteelyardValues,
    "steelyard-crds": NoValues,
    "steelyard-demo": DemoValues,
}


def schema(values: type[Record]) -> dict[str, Any]:
    """Give the JSON schema that Helm checks values against. `global` belongs to Helm when the chart is part of another."""
    made = values.model_json_schema(by_alias=True)
    made.setdefault("properties", {})["global"] = {"type": "object"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
