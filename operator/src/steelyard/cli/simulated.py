"""What `steelyard simulate` runs: the scenario from a service or from flags, and each policy with its first replicas."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from steelyard.api.quantities import Duration
from steelyard.cli.inputs import hardware, only_service
from steelyard.cli.refusing import Refused, refused
from steelyard.decide.queue.judge import Objectives
from steelyard.decide.scale import signals as law
from steelyard.sim import spec
from steelyard.sim.engine import Batching, Engine
from steelyard.sim.policies.choose import choose, replicas
from steelyard.sim.policies.policy import Policy
from steelyard.sim.scenario import Failure, Routing, Scenario

DEFAULT_ATTAINMENT = 95.0
MOST_REPLICAS = 1000  # of a role, as the API takes it


@dataclass(frozen=True, slots=True)
class Setting:
    """The flags that describe the service and its world; None where the service's manifest or a default rules."""

    service: Path | None
    accelerators: tuple[Path, ...]
    profile: Path | None
    max_sequences: int
    max_batch_tokens: int
    replicas: str | None
    ttft: float | None
    tpot: float | None
    attainment: float | None
    budget: int | None
    startup: float | None
    role_change: bool
    routing: str
    seed: int
    client_timeout: float | None = None
    failures: tuple[str, ...] = ()  # each "decode@2m"
    prefix_cache: int = 0  # tokens


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation to do."""

    name: str
    scenario: Scenario
    make: Callable[[], Policy]
    words: str


def runs(setting: Setting, policies: tuple[str, ...], sweep: str | None) -> list[Run]:
    """Plan all runs. Raises ValueError that names the flag or field, `Refused` for what the operator would refuse."""
    scenario, asked = _described(setting)
    names = list(policies)
    if sweep is not None:
        names += _sweep(sweep, scenario)
    planned = []
    for name in names or ["ours"]:
        chosen = choose(name, scenario.engine, asked)
        if chosen.initial is not None:
            _bounded(f"--policy {name}", chosen.initial, dict.fromkeys(chosen.initial, MOST_REPLICAS))
        own = scenario if chosen.initial is None else replace(scenario, initial=chosen.initial)
        planned.append(Run(name, own, chosen.make, _words(scenario)))
    return planned


def _sweep(sweep: str, scenario: Scenario) -> list[str]:
    if sweep != "ratio":
        raise ValueError(f"--sweep is {sweep!r}; there is only ratio")
    total = sum(scenario.initial.values())
    if scenario.aggregated or total < 2:
        raise ValueError(
            "--sweep ratio needs prefill and decode replicas; give their number with --replicas, such as 4:4"
        )
    return [f"static={prefill}:{total - prefill}" for prefill in range(1, total)]


def _described(setting: Setting) -> tuple[Scenario, law.Service]:
    scenario, asked = _from_service(setting) if setting.service is not None else _from_flags(setting)
    if setting.service is not None and setting.profile is not None:
        engine, startup = _profile(setting, scenario.engine.max_sequences, scenario.engine.batch_tokens)
        scenario = replace(scenario, engine=engine, engines={}, startup_seconds=startup)
        asked = replace(asked, engines=spec.told(scenario, 0.5, role_change=True, budget=None).engines)
    if setting.replicas is not None:
        scenario = replace(scenario, initial=replicas(setting.replicas))
        if set(scenario.roles) != set(asked.limits.roles):
            raise ValueError(f"--replicas {setting.replicas!r} does not fit the service's topology")
        most = {role: bounds.max for role, bounds in asked.limits.roles.items()}
        _bounded(f"--replicas {setting.replicas}", scenario.initial, most)
    objectives = Objectives(
        scenario.objectives.ttft_seconds if setting.ttft is None else setting.ttft,
        scenario.objectives.tpot_seconds if setting.tpot is None else setting.tpot,
    )
    startup = scenario.startup_seconds if setting.startup is None else setting.startup
    scenario = replace(
        scenario, objectives=objectives, startup_seconds=startup, routing=_routing(setting.routing), seed=setting.seed
    )
    if setting.client_timeout is not None:
        scenario = replace(scenario, client_timeout_seconds=setting.client_timeout)
    if setting.prefix_cache < 0:
        raise ValueError(f"--prefix-cache is {setting.prefix_cache}; it is a number of tokens, 0 for none")
    scenario = replace(scenario, prefix_cache_tokens=setting.prefix_cache)
    scenario = replace(scenario, failures=tuple(_failure(text, scenario) for text in setting.failures))
    percent = asked.objectives.attainment * 100 if setting.attainment is None else setting.attainment
    if not 0 < percent < 100:
        raise ValueError(f"--attainment is {percent:g}; it is a percentage above 0 and below 100")
    limits = asked.limits
    if setting.budget is not None:
        limits = replace(limits, accelerators=setting.budget)
    if setting.budget is not None and setting.budget < sum(scenario.initial.values()):
        raise ValueError(f"--budget is {setting.budget}; {sum(scenario.initial.values())} replicas run at the start")
    limits = replace(limits, role_change=limits.role_change and setting.role_change)
    engines = {role: replace(engine, start_seconds=startup) for role, engine in asked.engines.items()}
    told = law.Objectives(objectives.ttft_seconds, objectives.tpot_seconds, percent / 100)
    return scenario, replace(asked, limits=limits, objectives=told, engines=engines)


def _bounded(flag: str, counts: Mapping[str, int], most: Mapping[str, int]) -> None:
    """Refuse more replicas than a role may have: the manifest's maximum, or what the API takes at most."""
    for role, count in counts.items():
        if count > most[role]:
            limit = f"a {role} pool has {most[role]} at most"
            source = "what the API takes" if most[role] == MOST_REPLICAS else f"spec.{role}.replicas.max"
            raise ValueError(f"{flag} asks for {count} {role} replicas; {limit} ({source})")


def _failure(text: str, scenario: Scenario) -> Failure:
    role, _, when = text.partition("@")
    try:
        at = Duration(when).seconds
    except ValueError as failure:
        raise ValueError(f"--fail {text!r}: {failure}; write a role and a time, such as decode@2m") from failure
    if role not in scenario.roles:
        raise ValueError(f"--fail {text!r}: there is no role {role!r}; the service has {', '.join(scenario.roles)}")
    return Failure(at, role)


def _from_service(setting: Setting) -> tuple[Scenario, law.Service]:
    path = setting.service or Path()
    known = hardware(setting.accelerators)
    service, reasons = refused(only_service(path, "simulated"), known)
    if service is None or reasons:
        raise Refused("\n".join(reasons))
    return spec.of_service(service, known)


def _from_flags(setting: Setting) -> tuple[Scenario, law.Service]:
    if setting.profile is None:
        raise ValueError("say what serves: --service with a manifest, or --profile with an engine's profile")
    if setting.replicas is None:
        raise ValueError("--profile needs --replicas, such as 6:1")
    engine, startup = _profile(setting, setting.max_sequences, setting.max_batch_tokens)
    scenario = Scenario(
        engine=engine,
        objectives=Objectives(setting.ttft, setting.tpot),
        initial=replicas(setting.replicas),
        startup_seconds=startup,
    )
    return scenario, spec.told(scenario, DEFAULT_ATTAINMENT / 100, role_change=True, budget=setting.budget)


def _profile(setting: Setting, sequences: int, tokens: int) -> tuple[Engine, float]:
    path = setting.profile or Path()
    return spec.of_profile(path, max_sequences=sequences, max_batch_tokens=tokens, batching=Batching.CHUNKED)


def _routing(text: str) -> Routing:
    try:
        return Routing(text)
    except ValueError as failure:
        raise ValueError(f"--routing is {text!r}; there are {', '.join(Routing)}") from failure


def _words(scenario: Scenario) -> str:
    sizes = ", ".join(f"{count} {role}" for role, count in scenario.initial.items())
    ttft, tpot = scenario.objectives.ttft_seconds, scenario.objectives.tpot_seconds
    said = [f"TTFT {ttft:g} s" if ttft else "no TTFT objective", f"TPOT {tpot:g} s" if tpot else "no TPOT objective"]
    patience = scenario.client_timeout_seconds
    leaving = "clients wait for ever" if patience is None else f"clients give up after {patience:g} s"
    return (
        f"{sizes} at the start, {' and '.join(said)}, start-up {scenario.startup_seconds:g} s, routing {scenario.routing},"
        f" {leaving}, seed {scenario.seed}."
    )
