"""From an InferenceService and its Accelerators to what the law needs to know of them: limits, objectives, priors."""

from collections.abc import Mapping

from steelyard.api.accelerator import Accelerator
from steelyard.api.goals import ratio
from steelyard.api.service import InferenceService
from steelyard.catalog.engines import ENGINES
from steelyard.decide.model.latency import Polynomial
from steelyard.decide.profile import LOAD_BYTES_PER_SECOND, START_SECONDS, figures
from steelyard.decide.scale.signals import Engine, Limits, Objectives, RoleLimits, Service

HANDOFF_SECONDS = 0.05  # as the gateway assumes until it has measured
# One processor core with a small model, where neither shape nor accelerator say more: the gateway's prior.
PROCESSOR_PREFILL = (0.02, 0.002, 0.0)
PROCESSOR_DECODE = (0.03, 0.02, 0.0, 0.01)
# An accelerator with a model that nobody described: amidst what the catalogue's models take on its hardware.
ACCELERATOR_PREFILL = (0.02, 0.0001, 0.0)
ACCELERATOR_DECODE = (0.01, 0.05, 0.0, 0.0001)
UNKNOWN_START_SECONDS = 60.0


def scaled(service: InferenceService, accelerators: Mapping[str, Accelerator | None]) -> Service:
    """Put together what the law needs of one accepted service."""
    spec = service.spec
    scaling, objectives = spec.autoscaling, spec.objectives
    ttft, tpot = objectives.time_to_first_token, objectives.time_per_output_token
    hardware = {role: accelerators.get(spec.accelerator_of(role)) for role in spec.roles}
    return Service(
        limits=Limits(
            roles={
                name: RoleLimits(
                    role.replicas.min,
                    role.replicas.limit,
                    spec.parallelism_of(name).accelerators,
                    _price(hardware[name]),
                )
                for name, role in spec.roles.items()
            },
            accelerators=scaling.budget.accelerators,
            cost_per_hour=scaling.budget.cost_per_hour,
            ratio_min=ratio(scaling.ratio.min) if scaling.ratio.min else None,
            ratio_max=ratio(scaling.ratio.max) if scaling.ratio.max else None,
            role_change=roles_may_change(service),
            standby=scaling.standby,
            mode=scaling.mode,
        ),
        objectives=Objectives(
            ttft.seconds if ttft else None, tpot.seconds if tpot else None, objectives.attainment / 100
        ),
        engines={name: _engine(service, name, hardware[name]) for name in spec.roles},
        handoff_seconds=HANDOFF_SECONDS,
    )


def roles_may_change(service: InferenceService) -> bool:
    """Whether a pod of one role may become one of the other: that is allowed, they are spread alike, in the same formats."""
    spec = service.spec
    ways = {spec.parallelism_of(role) for role in spec.roles}
    formats = [spec.quantization_of(role) for role in spec.roles]
    alike = len(ways) == 1 and all(one == formats[0] for one in formats)  # not hashed: a Job's resources are a mapping
    return spec.autoscaling.role_change == "Allowed" and alike


def _price(accelerator: Accelerator | None) -> float | None:
    return accelerator.spec.price_per_hour if accelerator else None


def _engine(service: InferenceService, role: str, accelerator: Accelerator | None) -> Engine:
    batching = service.spec.batching_of(role)
    kv_tokens = service.spec.kv_tokens_of(role)
    try:
        known = figures(service, role, accelerator) if accelerator else None
    except ValueError:
        known = None
    sequences, tokens = batching.max_sequences or 1, batching.max_batch_tokens or 1
    if known is not None:
        start = START_SECONDS + known.weights / LOAD_BYTES_PER_SECOND
        return Engine(known.polynomial(kv_tokens), sequences, tokens, start)
    if accelerator and accelerator.spec.resource is not None and ENGINES[service.spec.engine.name].needs_hardware:
        prior = Polynomial(ACCELERATOR_PREFILL, ACCELERATOR_DECODE, kv_tokens)
        return Engine(prior, sequences, tokens, UNKNOWN_START_SECONDS, guessed=True)
    prior = Polynomial(PROCESSOR_PREFILL, PROCESSOR_DECODE, kv_tokens)
    return Engine(prior, sequences, tokens, UNKNOWN_START_SECONDS)
