"""May the engine do what the spec's typed settings ask for? What it lacks is refused, never dropped.

Two sources: the table of abilities (`catalog/abilities.toml`), and the few combinations that a table of single fields
cannot state.
"""

from collections.abc import Iterator

from steelyard.api.model import HubSource
from steelyard.api.service import InferenceService
from steelyard.catalog.abilities import row_of, written
from steelyard.decide.quantizing import READABLE, RECIPES, claim_of

Finding = tuple[str, str, str]  # field, value, problem and remedy

LEAST_WINDOW = 32  # tokens, of the embedded engine
LOADABLE = {"vllm": ("fp8", "int8", "nvfp4"), "sglang": ("fp8",)}  # formats that source Load makes


def found(service: InferenceService) -> Iterator[Finding]:
    """Look at every setting that the spec writes, where it is written."""
    engine = service.spec.engine.name
    cached = service.spec.model.cache.kind != "none"
    for place, name, value in written(service):
        if cached and engine == "llama-cpp" and name.startswith("model.credentials"):
            continue  # the loader shows them, not the engine
        row = row_of(name, value)
        if row is not None and (lack := row.lack(engine)) is not None:
            yield place, value, f"engine {engine}: {lack}"
    yield from _formats(service)
    yield from _jobs(service)
    yield from _store(service)
    yield from _names(service)
    yield from _draft(service)
    yield from _window(service)


def _formats(service: InferenceService) -> Iterator[Finding]:
    """Combinations of number formats, as each role resolves them."""
    engine = service.spec.engine.name
    for role in service.spec.roles:
        formats, field = service.spec.quantization_of(role), _where(service, role, "quantization")
        if formats.attention == "fp8" and formats.kv_cache != "fp8":
            problem = "8-bit attention reads an 8-bit cache; set quantization.kvCache fp8 as well, or leave it auto"
            yield f"{field}.attention", "fp8", problem
        if formats.source == "Load" and formats.weights not in LOADABLE.get(engine, ("fp8",)):
            known = " or ".join(LOADABLE.get(engine, ("fp8",)))
            problem = f"engine {engine} makes {known} while loading; set weights to that, or use a quantized checkpoint"
            yield f"{field}.source", f"Load of {formats.weights}", problem
        if formats.source == "Load" and formats.activations not in ("auto", None):
            problem = "source Load chooses the activations by the weights; leave it auto"
            yield f"{field}.activations", str(formats.activations), problem
    kinds = {role: service.spec.quantization_of(role).kv_cache for role in service.spec.roles}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{role} {kind}" for role, kind in kinds.items())
        problem = "the roles hand their cache over, so it must have one form; set spec.quantization.kvCache alone"
        yield "spec.<role>.quantization.kvCache", told, problem


def _jobs(service: InferenceService) -> Iterator[Finding]:
    """What a Job cannot make, or cannot find a place for."""
    for role in service.spec.roles:
        formats, field = service.spec.quantization_of(role), _where(service, role, "quantization")
        if formats.source != "Job":
            continue
        if formats.weights not in RECIPES:
            makes = ", ".join(recipes_of(service.spec.engine.name))
            problem = f"source Job makes {makes}; set weights to one of them, or leave source Checkpoint"
            yield f"{field}.weights", str(formats.weights), problem
        if formats.activations not in ("auto", None):
            problem = "source Job chooses the activations by the weights; leave it auto"
            yield f"{field}.activations", str(formats.activations), problem
        scheme = service.spec.model.uri.split("://")[0]
        if scheme not in READABLE:
            problem = "a Job reads weights from hf://, oci:// or pvc://; put them there, or use a quantized checkpoint"
            yield "spec.model.uri", service.spec.model.uri, problem
        elif claim_of(service, role) is None:
            problem = "the Job needs a place for what it makes; name a PersistentVolumeClaim of this namespace"
            yield f"{field}.job.claim", "(absent)", problem


def recipes_of(engine: str) -> tuple[str, ...]:
    """What a Job can make that the engine reads; all where it reads none, since that is refused in other words."""
    rows = {recipe: row_of("quantization.weights", recipe) for recipe in RECIPES}
    return tuple(recipe for recipe, row in rows.items() if row is None or row.lack(engine) is None) or RECIPES


def _store(service: InferenceService) -> Iterator[Finding]:
    """The connector lmcache hands over through a shared LMCache server."""
    offload = service.spec.cache.offload
    if service.spec.connector == "lmcache" and (offload.kind != "lmcache" or offload.address is None):
        problem = "it hands over through an LMCache server; set cache.offload.kind lmcache and cache.offload.address"
        yield "spec.transfer.connector", "lmcache", problem
    if service.spec.connector == "lmcache" and service.spec.transfer.on_failure == "fail":
        problem = "a store that lacks a prompt is no failure, the decode pod reads it; leave it recompute"
        yield "spec.transfer.onFailure", "fail", problem


def _names(service: InferenceService) -> Iterator[Finding]:
    scheme = service.spec.model.uri.split("://")[0]
    if service.spec.model.credentials is not None and scheme in ("oci", "pvc"):
        problem = (
            f"weights from {scheme}:// need no credentials (images are pulled with imagePullSecrets); leave it out"
        )
        yield "spec.model.credentials", service.spec.model.credentials.secret_name, problem
    for adapter in service.spec.model.adapters:
        if adapter.name == service.served_name:
            problem = "the model itself is served under that name; give the adapter another"
            yield "spec.model.adapters", adapter.name, problem
        source = adapter.source
        if isinstance(source, HubSource) and service.spec.engine.name == "llama-cpp":
            problem = "the embedded engine fetches no adapters; put the GGUF file on a claim: pvc://CLAIM/PATH"
            yield "spec.model.adapters", adapter.uri, problem
        elif isinstance(source, HubSource) and source.revision is not None:
            problem = (
                f"engines fetch an adapter's newest revision and cannot be told another; leave @{source.revision} out, or"
                " put that revision on a claim and name it as pvc://CLAIM/PATH"
            )
            yield "spec.model.adapters", adapter.uri, problem


def _draft(service: InferenceService) -> Iterator[Finding]:
    """The embedded engine reads its small model from a file; nobody fetches one for it."""
    wish = service.spec.speculation
    if service.spec.engine.name == "llama-cpp" and wish.method == "draft" and not (wish.model or "").startswith("/"):
        problem = "the embedded engine fetches no models; name the GGUF file's path in the container"
        yield "spec.speculation.model", str(wish.model), problem


def _window(service: InferenceService) -> Iterator[Finding]:
    """Our engines forget a quarter of a window at once, so they want one of some length."""
    window = service.spec.cache.eviction.window_tokens
    if service.spec.engine.name in ("llama-cpp", "simulated") and window is not None and window < LEAST_WINDOW:
        yield "spec.cache.eviction.windowTokens", str(window), f"give at least {LEAST_WINDOW} tokens"


def _where(service: InferenceService, role: str, block: str) -> str:
    """Name the block a reader will look at first: the role's where it writes one."""
    own = service.spec.roles[role].quantization
    return f"spec.{role}.{block}" if own != type(own)() else f"spec.{block}"
