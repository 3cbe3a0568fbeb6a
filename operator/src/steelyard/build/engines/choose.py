"""From an engine's name to its builder; all builders have one interface."""

from collections.abc import Callable, Mapping

from steelyard.api.accelerator import Accelerator
from steelyard.api.roles import Role
from steelyard.api.service import InferenceService
from steelyard.build.engines import embedded, sglang, tensorrt_llm, vllm
from steelyard.build.engines.parts import Parts
from steelyard.decide.installation import as_installed
from steelyard.decide.site import Site

Builder = Callable[[InferenceService, str, Role, Accelerator | None, Site], Parts]

BUILDERS: Mapping[str, Builder] = {
    "llama-cpp": embedded.parts,
    "simulated": embedded.parts,
    "vllm": vllm.parts,
    "sglang": sglang.parts,
    "tensorrt-llm": tensorrt_llm.parts,
}


def parts(service: InferenceService, role_name: str, accelerator: Accelerator | None, site: Site) -> Parts:
    """Build one role's engine by the service's engine; the role's own settings win over the service's."""
    builder = BUILDERS[service.spec.engine.name]
    service = as_installed(service, site.engine_images)
    return builder(service, role_name, service.spec.roles[role_name], accelerator, site)
