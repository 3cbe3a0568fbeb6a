"""What `steelyard plan` asks: from a manifest and flags to a question for the planner."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.service import InferenceService
from steelyard.catalog import configs, formats, models, versions
from steelyard.catalog.engines import ENGINES
from steelyard.catalog.shapes import Shape
from steelyard.cli import flags
from steelyard.cli.inputs import hardware, json_of, only_service
from steelyard.cli.plan_allowed import Wish, allowed
from steelyard.cli.refusing import Refused, refused
from steelyard.decide.feasibility import service as of_service
from steelyard.decide.feasibility.inputs import Side, Targets
from steelyard.decide.goodput.search import Goal
from steelyard.decide.goodput.workload import Workload
from steelyard.decide.model.roofline import HOST_LINK_BYTES_PER_SECOND
from steelyard.decide.model.speculation import Guessing
from steelyard.sim import synthetic, trace
from steelyard.sim.planner import Question
from steelyard.sim.requests import Arrival
from steelyard.sim.synthetic import Load

LEAST_REQUESTS, MOST_REQUESTS = 1000, 5000
LIFETIMES = 4  # of a request, that a play lasts: a service fills up before it settles
MOST_RATE = 100_000.0  # requests per second
LEAST_CONTEXT, MOST_CONTEXT = 16, 16_777_216  # of spec.model.contextLength
MOST_VARIATION = 5.0  # lengths that differ by a factor of 150, two times in three
PLACES = {  # of settings, in messages: the flag and the field that each comes from
    "context": ("--context-length", "spec.model.contextLength"),
    "kvCache": ("--kv-cache", "spec.quantization.kvCache"),
    "weights": ("--weights", "spec.quantization.weights"),
}
DEFAULTS = {"rate": 10.0, "prompt": 1000.0, "answer": 200.0, "ttft": 1.0, "tpot": 0.05, "attainment": 95.0}


@dataclass(frozen=True, slots=True)
class Asked:
    """The flags; None where the manifest or a default rules."""

    file: Path | None
    hardware: tuple[Path, ...]
    model: str | None
    config: Path | None
    accelerators: tuple[str, ...]
    engine: str | None
    formats: tuple[str, ...]
    kv: str | None
    context: int | None
    rate: float | None
    prompt: float | None
    answer: float | None
    spread: float
    trace: Path | None
    ttft: float | None
    tpot: float | None
    attainment: float | None
    budget: int | None
    seed: int
    acceptance: float | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The question, with what the answer is told about: the model's name, the shape, the manifest where there is one."""

    question: Question
    model: str
    uri: str
    shape: Shape
    stored: str | None
    service: InferenceService | None
    written: Mapping[str, Any]  # the manifest as it was written; empty where there is none
    known: Mapping[str, Accelerator | None]  # hardware: the catalogue's, and what was given beside it


def planned(asked: Asked) -> Planned:
    """Put the question together. Raises ValueError naming the flag, `Refused` for what the operator would refuse."""
    _check(asked)
    known = hardware(asked.hardware)
    service, written = _service(asked.file, known) if asked.file is not None else (None, {})
    engine = asked.engine or (service.spec.engine.name if service else "vllm")
    name, uri, shape, stored = _model(asked, service)
    load, arrivals = _load(asked)
    goal = _goal(asked, service)
    context = service.spec.model.context_length if service else _round(load.lengths.longest * 1.05)
    context = context if asked.context is None else asked.context
    names = _names(asked, service, known)
    own = written.get("spec") or {}
    topologies, notes = allowed(Wish(engine, uri, context, shape, names, asked.formats, asked.kv, own), known)
    sides = tuple(_side(one, asked, service, engine, shape, stored, context) for one in _found(names, known))
    links = [side.hardware.interconnect for side in sides]
    slowest = min(
        (link.between_nodes or HOST_LINK_BYTES_PER_SECOND) if link else HOST_LINK_BYTES_PER_SECOND for link in links
    )
    most = service.spec.autoscaling.budget.accelerators if service and asked.budget is None else asked.budget
    question = Question(
        sides=sides,
        formats=asked.formats or None,
        load=load,
        goal=replace(goal, network_bytes=slowest),
        arrivals=arrivals,
        most=most,
        topologies=topologies,
        notes=notes,
    )
    return Planned(question, name, uri, shape, stored, service, written, known)


def _check(asked: Asked) -> None:
    """Refuse values that could never make sense, by their flags."""
    for flag, value, names in (
        ("--engine", asked.engine, ENGINES),
        ("--kv-cache", asked.kv, formats.KV),
        *(("--weights", form, formats.WEIGHTS) for form in asked.formats),
    ):
        if value is not None and value not in names:
            raise ValueError(f"{flag} is {value!r}; there are {', '.join(names)}")
    flags.above_zero("--rate", asked.rate, MOST_RATE)
    flags.above_zero("--prompt-tokens", asked.prompt, MOST_CONTEXT)
    flags.above_zero("--output-tokens", asked.answer, MOST_CONTEXT)
    flags.within("--variation", asked.spread, 0, MOST_VARIATION)
    flags.within("--context-length", asked.context, LEAST_CONTEXT, MOST_CONTEXT)
    flags.objective("--ttft", asked.ttft)
    flags.objective("--tpot", asked.tpot)
    if asked.budget is not None and asked.budget < 1:
        raise ValueError(f"--budget is {asked.budget}; at least 1 accelerator is needed, or leave it out for no limit")


def _service(path: Path, known: dict[str, Accelerator | None]) -> tuple[InferenceService, dict[str, Any]]:
    body = only_service(path, "planned")
    service, reasons = refused(body, known)
    if service is None or reasons:
        raise Refused("\n".join(reasons))
    return service, body


def _model(asked: Asked, service: InferenceService | None) -> tuple[str, str, Shape, str | None]:
    if asked.config is not None:
        name = asked.model or (service.spec.model.uri if service else asked.config.stem)
        uri = name if "://" in name else f"hf://{name}" if "/" in name else "pvc://models"
        content = _config(asked.config)
        try:
            return name, uri, configs.read(content), configs.checkpoint_format(content) or "none"
        except (AttributeError, TypeError, ValueError, ArithmeticError) as failure:  # a value that cannot be one there
            raise ValueError(f"--config {asked.config}: is no model's config.json: {failure}") from failure
    if asked.model is not None:
        repository = asked.model.removeprefix("hf://").split("@")[0]
        found = models.known(repository)
        if found is None:
            raise ValueError(
                f"--model is {asked.model!r}, which the catalogue lacks; give its config.json with --config, or"
                f" one of {', '.join(models.MODELS)}"
            )
        return repository, f"hf://{repository}", found[0].shape, found[1] or "none"
    if service is None:
        raise ValueError("say what is served: -f with a manifest, or --model with a repository's name, or --config")
    known = of_service.known_shape(service.spec.model)
    if known is None:
        raise ValueError(
            "spec.model.shape: (absent): the catalogue lacks this model; write the facts of its config.json there, or"
            " give the file with --config"
        )
    return service.served_name, service.spec.model.uri, known[0], known[1]


def _config(path: Path) -> dict[str, Any]:
    try:
        return json_of(path)
    except ValueError as failure:
        raise ValueError(f"--config {failure}") from failure


def _names(asked: Asked, service: InferenceService | None, known: dict[str, Accelerator | None]) -> tuple[str, ...]:
    own = dict.fromkeys(service.spec.accelerator_of(role) for role in service.spec.roles) if service else ("h200",)
    names = tuple(dict.fromkeys(asked.accelerators)) or tuple(own)
    for name in names:
        if known.get(name) is None:
            raise ValueError(f"--accelerator is {name!r}; there are {', '.join(sorted(known))}")
    return names


def _found(names: tuple[str, ...], known: dict[str, Accelerator | None]) -> list[Accelerator]:
    """The accelerators of these names, which are known, with the figures that computing takes."""
    found = []
    for name in names:
        accelerator = known[name]
        assert accelerator is not None
        if accelerator.spec.memory is None or accelerator.spec.memory_bandwidth is None:
            raise ValueError(f"accelerator {name} has no memory or memoryBandwidth, so nothing can be computed for it")
        found.append(accelerator)
    return found


def _side(
    accelerator: Accelerator,
    asked: Asked,
    service: InferenceService | None,
    engine: str,
    shape: Shape,
    stored: str | None,
    context: int,
) -> Side:
    chosen = {"context": asked.context is not None, "kvCache": asked.kv is not None, "weights": bool(asked.formats)}
    places = {name: PLACES[name][0 if service is None or by_flag else 1] for name, by_flag in chosen.items()}
    if service is not None:
        role = next(iter(service.spec.roles))
        base = of_service.side_of(service, role, accelerator, shape, stored)
        base = replace(base, layout=type(base.layout)(), kv_tokens=None, context=context)
        base = replace(base, engine=engine, places=places)
    else:
        version = versions.version(ENGINES[engine].version)
        base = Side(
            "decode", accelerator.name, accelerator.spec, engine, version, shape, stored, context=context, places=places
        )
    if asked.acceptance is not None:
        base = replace(base, guessing=_guessing(asked.acceptance, service, base))
    return base if asked.kv is None else replace(base, kv=asked.kv)


def _guessing(acceptance: float, service: InferenceService | None, side: Side) -> Guessing:
    """What spec.speculation's guesses are worth; a head or a layer of the model's own costs one layer, a draft its weights."""
    if not 0 <= acceptance <= 1:
        raise ValueError(
            f"--acceptance is {acceptance:g}; it is the share of guesses that are accepted, between 0 and 1"
        )
    if service is None or service.spec.speculation.method == "none":
        raise ValueError("--acceptance belongs to a manifest (-f) with a spec.speculation.method other than none")
    wish = service.spec.speculation
    if wish.method == "draft" and side.draft is None:
        raise ValueError(
            f"spec.speculation.model is {wish.model!r}, which the catalogue lacks, so the cost of a guess is not known;"
            " leave --acceptance out"
        )
    cost = {
        "ngram": 0.0,
        "draft": side.draft.active / side.shape.active if side.draft else 0.0,
        "eagle3": 1 / side.shape.layers,
        "mtp": 1 / side.shape.layers,
    }
    return Guessing(acceptance, wish.guesses, cost[wish.method])


def _goal(asked: Asked, service: InferenceService | None) -> Goal:
    goals = service.spec.objectives if service else None
    own = (goals.time_to_first_token, goals.time_per_output_token) if goals else (None, None)
    ttft, tpot = (
        flag if flag is not None else (set_.seconds if set_ else None)
        for flag, set_ in zip((asked.ttft, asked.tpot), own, strict=True)
    )
    if ttft is None and tpot is None:
        ttft, tpot = DEFAULTS["ttft"], DEFAULTS["tpot"]
    percent = (
        asked.attainment if asked.attainment is not None else (goals.attainment if goals else DEFAULTS["attainment"])
    )
    if not 0 < percent < 100:
        raise ValueError(f"--attainment is {percent:g}; it is a percentage above 0 and below 100")
    return Goal(Targets(ttft, tpot), percent / 100, service.spec.connector if service else _usual_connector(asked))


def _usual_connector(asked: Asked) -> str:
    return "http" if asked.engine is not None and ENGINES[asked.engine].backend else "nixl"


def _load(asked: Asked) -> tuple[Workload, Callable[[Workload], Callable[[], Iterable[Arrival]]]]:
    if asked.trace is not None:
        requests = list(islice(trace.read(asked.trace), 200_000))
        if len(requests) < 2:
            raise ValueError(f"--trace {asked.trace}: holds {len(requests)} requests; two are needed for a rate")
        span = requests[-1].at - requests[0].at
        own = (len(requests) - 1) / max(span, 1e-9)
        load = Workload.of_requests(
            own if asked.rate is None else asked.rate, [(max(1, a.prompt - a.cached), a.answer) for a in requests]
        )
        first = requests[0].at
        kept = requests[:MOST_REQUESTS]
        return load, lambda asked_for: lambda: (a._replace(at=(a.at - first) * own / asked_for.rate) for a in kept)
    rate, prompt, answer = (
        DEFAULTS[name] if value is None else value
        for name, value in (("rate", asked.rate), ("prompt", asked.prompt), ("answer", asked.answer))
    )
    lifetime = (asked.ttft or DEFAULTS["ttft"]) + answer * (asked.tpot or DEFAULTS["tpot"])
    requests_ = min(max(LEAST_REQUESTS, rate * lifetime * LIFETIMES), MOST_REQUESTS)

    def steady(load: Workload) -> Callable[[], Iterable[Arrival]]:
        made = list(
            synthetic.steady(
                Load(load.rate, load.lengths.prompt, load.lengths.answer, spread=asked.spread),
                requests_ / load.rate,
                asked.seed,
            )
        )
        return lambda: iter(made)

    return Workload.of_means(rate, prompt, answer, asked.spread), steady


def _round(tokens: float) -> int:
    """The next multiple of 1,024: context lengths are written so."""
    return -(-int(tokens) // 1024) * 1024
