"""What this installation cannot serve, whatever the spec: it takes the operator's settings, which plans and simulations do not.

And what the installation's own image of an engine tells: the version that a service gets without saying so.
"""

from collections.abc import Mapping

from steelyard.api.reasons import Reason
from steelyard.api.service import InferenceService
from steelyard.catalog.engines import ENGINES, version_told
from steelyard.catalog.versions import Version, version
from steelyard.decide.accept import Accelerators, Refusal

AMD = "amd"  # of an Accelerator's vendor
RELEASE = 2  # numbers of a version by which flags and abilities may differ


def refusals(
    service: InferenceService,
    accelerators: Accelerators,
    engine_images: Mapping[str, str],
    node_cache: str | None,
    quantize_image: str | None,
) -> tuple[Refusal, ...]:
    """Give every refusal of a service here; the settings are the operator's. What children in force have outlived is not among
    them: a written version is compared with the image only where something is rendered anew (`of_another_version`)."""
    return (
        *without_image(service, engine_images, accelerators),
        *without_node_cache(service, node_cache),
        *without_quantizer(service, quantize_image),
    )


def as_installed(service: InferenceService, engine_images: Mapping[str, str]) -> InferenceService:
    """Give the service with the version that the installation's image tells, where it names neither version nor image."""
    engine = service.spec.engine
    held = version_told(engine.name, engine_images.get(engine.name))
    if held is None or engine.version is not None or engine.image is not None:
        return service
    told = engine.model_copy(update={"version": written(held)})
    return service.model_copy(update={"spec": service.spec.model_copy(update={"engine": told})})


def written(held: Version) -> str:
    """Write a version as `spec.engine.version` takes it."""
    return ".".join(map(str, held[:3]))


def of_another_version(service: InferenceService, engine_images: Mapping[str, str]) -> tuple[Refusal, ...]:
    """Refuse a written version that is not the one of the image that the service gets: its flags would be another one's.

    An image that the service names itself may be called anything: there the written version is the word. Children in force
    hold the image that they were rendered with, so this is asked only before they are rendered anew: an upgrade of the chart
    that brings another image takes nothing from services that run.
    """
    engine = service.spec.engine
    image = engine_images.get(engine.name) or ENGINES[engine.name].image
    held, told = version_told(engine.name, image), version(engine.version)
    if engine.image is not None or told is None or held is None or held[:RELEASE] == told[:RELEASE]:
        return ()
    problem = f"its image here is {image}; name one of that version in spec.engine.image, or leave the version out"
    return (Refusal(Reason.INVALID_SPEC, "spec.engine.version", str(engine.version), problem),)


def without_image(
    service: InferenceService, engine_images: Mapping[str, str], accelerators: Accelerators
) -> tuple[Refusal, ...]:
    """Refuse an engine whose image neither the service nor the installation names, and whose project has none to fall
    back on: a name made up here could be somebody else's in a public registry, and would get the tenant's token. What the
    project has is built for CUDA, so on other hardware one has to be named too."""
    engine = service.spec.engine
    known = ENGINES[engine.name]
    held = engine.image or engine_images.get(engine.name)
    if known.backend or (held and held != known.image):  # a backend: it is ours
        return ()
    others = {service.spec.accelerator_of(role) for role in service.spec.roles}
    amd = [name for name in sorted(others) if (one := accelerators.get(name)) and one.spec.vendor == AMD]
    if known.image and amd:
        problem = (
            f"{amd[0]} is AMD's, and {known.image} is built for CUDA; name engine.image (a ROCm build), or one in the"
            f" operator's setting images.engines.{engine.name}"
        )
        return (Refusal(Reason.INVALID_SPEC, "spec.engine.image", held or "(absent)", problem),)
    if known.image or held:
        return ()
    problem = (
        f"engine {engine.name} has no default image; name its vendor's image, registry included, here or in the"
        f" operator's setting images.engines.{engine.name}"
    )
    return (Refusal(Reason.INVALID_SPEC, "spec.engine.image", "(absent)", problem),)


def without_node_cache(service: InferenceService, node_cache: str | None) -> tuple[Refusal, ...]:
    """Refuse a cache on nodes where the installation has set no folder aside: paths of nodes are not the user's to mount."""
    if service.spec.model.cache.kind != "node" or node_cache:
        return ()
    problem = "this installation keeps no models on nodes (chart value nodeCache); use kind claim"
    return (Refusal(Reason.SETTING_NOT_SUPPORTED, "spec.model.cache.kind", "node", problem),)


def without_quantizer(service: InferenceService, image: str | None) -> tuple[Refusal, ...]:
    """Refuse to quantize where the installation has nothing to do it with."""
    if image or all(service.spec.quantization_of(role).source != "Job" for role in service.spec.roles):
        return ()
    problem = "this installation names no image for it (images.quantize); use a quantized checkpoint, or source Load"
    return (Refusal(Reason.SETTING_NOT_SUPPORTED, "spec.quantization.source", "Job", problem),)
