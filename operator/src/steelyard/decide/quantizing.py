"""Weights that a Job quantizes before the engines start: which Jobs a spec needs, and how far they are.

A role with `quantization.source: Job` reads a folder of a claim whose name is a hash of the model's revision and the recipe: the
Job that finds it there ends at once, so what was quantized once is never quantized again, by whatever service that names
the claim. A Job's own name hashes all that it depends on, the installation's images left out: a corrected spec is another Job,
a new release of Steelyard is not. As long as one is not done the children in force stay, and those of the spec are not rendered.
One that cannot start computes nothing: where the installation would make it otherwise now, it is made anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from steelyard.api import names
from steelyard.api.model import HubSource, PvcSource
from steelyard.api.quantities import Quantity
from steelyard.api.reasons import Reason
from steelyard.api.resources import Resources
from steelyard.api.service import InferenceService
from steelyard.decide.fingerprint import digest
from steelyard.decide.snapshot import Job, Trouble

RECIPES = ("fp8", "int8", "int4-awq", "int4-gptq", "nvfp4", "mxfp4", "nf4", "ternary")  # presets of steelyard-quantize
READABLE = ("hf", "oci", "pvc")  # where a Job finds weights
PODLESS_SECONDS = 60.0  # after which a Job without a pod will not get one by itself
REMEDIES: Mapping[Reason, str] = {
    Reason.IMAGE_UNAVAILABLE: "correct the image (the chart's images.quantize, or what spec.model.uri names) or its pull"
    " secret, and the Job is made anew",
    Reason.UNSCHEDULABLE: "make the claim, or room for what spec.quantization.job.resources asks for",
}
DEFAULT_RESOURCES = Resources(requests={"cpu": Quantity("1"), "memory": Quantity("2Gi")})


@dataclass(frozen=True)
class Order:
    """One checkpoint that a Job makes."""

    job: str  # the Job's name
    recipe: str
    claim: str
    folder: str  # of the claim
    samples: int | None
    resources: Resources


@dataclass(frozen=True)
class Step:
    """An order, and how far it is; `job` is None where there is none yet."""

    order: Order
    job: Job | None

    @property
    def state(self) -> str:
        """As status says it."""
        if self.job is None:
            return "Waiting"
        return "Done" if self.job.done else "Failed" if self.job.failed else "Running" if self.job.runs else "Waiting"

    @property
    def words(self) -> str:
        """How far it is, for people."""
        return self.job.words if self.job is not None else ""

    @property
    def trouble(self) -> Trouble | None:
        """What keeps its pod from starting."""
        return self.job.trouble if self.job is not None else None

    @property
    def remedy(self) -> str:
        """What to do about that trouble."""
        found = REMEDIES.get(self.trouble.reason) if self.trouble is not None else None
        return found or f"`kubectl describe` of Job {self.order.job} and its pod tells what is in the way"


@dataclass(frozen=True)
class Quantizing:
    """All that the spec needs, of which at least one is not done."""

    steps: tuple[Step, ...]

    @property
    def failed(self) -> Step | None:
        """The first that failed."""
        return next((step for step in self.steps if step.state == "Failed"), None)

    @property
    def stuck(self) -> Step | None:
        """The first whose pod cannot start."""
        return next((step for step in self.steps if step.trouble is not None), None)

    def __str__(self) -> str:
        said = (
            f"{step.order.recipe} by Job {step.order.job}: {step.words or step.state.lower()}" for step in self.steps
        )
        return "; ".join(said)


def claim_of(service: InferenceService, role: str) -> str | None:
    """Name the claim that gets a role's quantized weights: the written one, else the one that holds the weights."""
    job, model = service.spec.quantization_of(role).job, service.spec.model
    if job is not None and job.claim is not None:
        return job.claim
    source = model.source
    if isinstance(source, PvcSource):
        return source.claim
    return model.cache.claim if isinstance(source, HubSource) else None


def order_of(service: InferenceService, role: str) -> Order | None:
    """What a role needs to have made; None where its weights are not quantized by a Job. Raises ValueError where the spec names
    no claim, which `decide/abilities.py` refuses."""
    formats, model = service.spec.quantization_of(role), service.spec.model
    if formats.source != "Job":
        return None
    claim = claim_of(service, role)
    if claim is None:
        raise ValueError("source Job without a claim; accept refuses such a service")
    job, recipe = formats.job, formats.weights or "auto"
    samples = job.samples if job is not None else None
    asked = job.resources if job is not None else Resources()
    resources = asked if asked.requests or asked.limits else DEFAULT_RESOURCES
    name = names.label_value(model.uri.partition("://")[2].partition("@")[0].strip("/").rpartition("/")[2])
    content = digest([model.uri, list(model.cache.files), recipe, samples])
    folder = f"{name}-{recipe}-{content}".lower()
    how = model.model_dump(mode="json", by_alias=True, include={"credentials", "cache"}, exclude_defaults=True)
    key = digest([folder, claim, resources.manifest(), how])
    return Order(names.quantize_job(service.name, key), recipe, claim, folder, samples, resources)


def orders(service: InferenceService) -> tuple[Order, ...]:
    """What all roles need, each once."""
    found = (order_of(service, role) for role in service.spec.roles)
    return tuple({order.job: order for order in found if order is not None}.values())


def under_way(service: InferenceService, jobs: Iterable[Job], now: float = 0.0) -> Quantizing | None:
    """How far the Jobs of a spec are at that moment (unix seconds); None where it needs none, or all are done."""
    known = {job.name: _given_up(job, now) for job in jobs}
    steps = tuple(Step(order, known.get(order.job)) for order in orders(service))
    return None if all(step.state == "Done" for step in steps) else Quantizing(steps)


def _given_up(job: Job, now: float) -> Job:
    """A Job whose pods the API server refuses says so in events alone: what is seen is that there is none."""
    if job.podless_since is None or now - job.podless_since < PODLESS_SECONDS:
        return job
    said = "no pod of it could be made: a quota, pod security or a webhook refuses it"
    return replace(job, words=said, trouble=Trouble(Reason.PODS_REFUSED, said))
