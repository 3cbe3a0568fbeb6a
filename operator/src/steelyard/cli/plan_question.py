"""What `steelyard plan` asks: from a manifest and flags to a question for the planner."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from steelyard.api.accelerator import Accelerator
from steelyard.api.service import InferenceService
from steelyard.catalog import configs, models, versions
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.catalog.engines import ENGINES
from steelyard.catalog.shapes import Shape
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


def planned(asked: Asked) -> Planned:
    """Put the question together. Raises ValueError naming the flag, `Refused` for what the operator would refuse."""
    known = hardware(asked.hardware)
    service, written = _service(asked.file, known) if asked.file is not None else (None, {})
    name, uri, shape, stored = _model(asked, service)
    load, arrivals = _load(asked)
    goal = _goal(asked, service)
    context = asked.context or (service.spec.model.context_length if service else _round(load.lengths.longest * 1.05))
    sides = tuple(
        _side(accelerator, asked, service, shape, stored, max(context, 16))
        for accelerator in _named(asked, service, known)
    )
    links = [side.hardware.interconnect for side in sides]
    slowest = min(
        (link.between_nodes or HOST_LINK_BYTES_PER_SECOND) if link else HOST_LINK_BYTES_PER_SECOND for link in links
    )
    most = asked.budget or (service.spec.autoscaling.budget.accelerators if service else None)
    question = Question(
        sides=sides,
        formats=asked.formats or None,
        load=load,
        goal=replace(goal, network_bytes=slowest),
        arrivals=arrivals,
        most=most,
    )
    return Planned(question, name, uri, shape, stored, service, written)


def hardware(paths: Iterable[Path]) -> dict[str, Accelerator | None]:
    """The catalogue and the manifests of Accelerators beside it."""
    known: dict[str, Accelerator | None] = dict(ACCELERATORS)
    for path in paths:
        for body in documents(path):
            if body.get("kind") == "Accelerator":
                accelerator = Accelerator.read(body)
                known[accelerator.name] = accelerator
    return known


def documents(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a YAML file."""
    try:
        return [body for body in yaml.safe_load_all(path.read_text()) if isinstance(body, dict)]
    except OSError as failure:
        raise ValueError(f"{path}: {failure.strerror or failure}") from failure
    except yaml.YAMLError as failure:
        raise ValueError(f"{path}: is not YAML: {failure}") from failure


def _service(path: Path, known: dict[str, Accelerator | None]) -> tuple[InferenceService, dict[str, Any]]:
    bodies = [body for body in documents(path) if body.get("kind") == "InferenceService"]
    if len(bodies) != 1:
        raise ValueError(f"{path}: holds {len(bodies)} InferenceServices; one is planned at a time")
    service, reasons = refused(bodies[0], known)
    if service is None or reasons:
        raise Refused("\n".join(reasons))
    return service, bodies[0]


def _model(asked: Asked, service: InferenceService | None) -> tuple[str, str, Shape, str | None]:
    if asked.config is not None:
        try:
            content = json.loads(asked.config.read_text())
        except (OSError, json.JSONDecodeError) as failure:
            raise ValueError(f"--config {asked.config}: {failure}") from failure
        name = asked.model or (service.spec.model.uri if service else asked.config.stem)
        uri = name if "://" in name else f"hf://{name}" if "/" in name else "pvc://models"
        return name, uri, configs.read(content), configs.checkpoint_format(content) or "none"
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


def _named(asked: Asked, service: InferenceService | None, known: dict[str, Accelerator | None]) -> list[Accelerator]:
    roles = service.spec.roles if service else {}
    names = asked.accelerators or tuple(
        dict.fromkeys(service.spec.accelerator_of(r) for r in roles) if service else ("h200",)
    )
    found = []
    for name in names:
        accelerator = known.get(name)
        if accelerator is None:
            raise ValueError(f"--accelerator is {name!r}; there are {', '.join(sorted(known))}")
        if accelerator.spec.memory is None or accelerator.spec.memory_bandwidth is None:
            raise ValueError(f"accelerator {name} has no memory or memoryBandwidth, so nothing can be computed for it")
        found.append(accelerator)
    return found


def _side(
    accelerator: Accelerator,
    asked: Asked,
    service: InferenceService | None,
    shape: Shape,
    stored: str | None,
    context: int,
) -> Side:
    if service is not None:
        role = next(iter(service.spec.roles))
        base = of_service.side_of(service, role, accelerator, shape, stored)
        base = replace(base, layout=type(base.layout)(), kv_tokens=None, places={}, context=context)
        base = base if asked.engine is None else replace(base, engine=asked.engine)
    else:
        engine = asked.engine or "vllm"
        version = versions.version(ENGINES[engine].version) if engine in ENGINES else None
        base = Side("decode", accelerator.name, accelerator.spec, engine, version, shape, stored, context=context)
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
    return Goal(Targets(ttft, tpot), percent / 100, service.spec.connector if service else "nixl")


def _load(asked: Asked) -> tuple[Workload, Callable[[Workload], Callable[[], Iterable[Arrival]]]]:
    if asked.trace is not None:
        requests = list(islice(trace.read(asked.trace), 200_000))
        if len(requests) < 2:
            raise ValueError(f"--trace {asked.trace}: holds {len(requests)} requests; two are needed for a rate")
        span = requests[-1].at - requests[0].at
        own = (len(requests) - 1) / max(span, 1e-9)
        load = Workload.of_requests(asked.rate or own, [(max(1, a.prompt - a.cached), a.answer) for a in requests])
        first = requests[0].at
        kept = requests[:MOST_REQUESTS]
        return load, lambda asked_for: lambda: (a._replace(at=(a.at - first) * own / asked_for.rate) for a in kept)
    rate, prompt, answer = (
        asked.rate or DEFAULTS["rate"],
        asked.prompt or DEFAULTS["prompt"],
        asked.answer or DEFAULTS["answer"],
    )
    for flag, value in (("--rate", rate), ("--prompt-tokens", prompt), ("--output-tokens", answer)):
        if value <= 0:
            raise ValueError(f"{flag} is {value:g}; it must be above 0")
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
