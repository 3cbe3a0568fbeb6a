"""From an InferenceService to a scenario: what the operator would run, on engines that behave as their roofline or profile says."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.service import InferenceService
from steelyard.decide.model.latency import Polynomial
from steelyard.decide.queue.dispatch import Order
from steelyard.decide.queue.judge import Objectives
from steelyard.decide.scale import signals as law
from steelyard.decide.scale.spec import scaled
from steelyard.sim.engine import Batching, Engine
from steelyard.sim.scenario import Scenario


def of_service(
    service: InferenceService, accelerators: Mapping[str, Accelerator | None]
) -> tuple[Scenario, law.Service]:
    """Give the scenario of an accepted service, and what its autoscaler is told."""
    asked = scaled(service, accelerators)
    spec = service.spec
    engines = {role: _engine(service, role, asked.engines[role]) for role in spec.roles}
    first = next(iter(engines.values()))
    scenario = Scenario(
        engine=first,
        engines={role: engine for role, engine in engines.items() if engine != first},
        objectives=Objectives(asked.objectives.ttft, asked.objectives.tpot),
        initial={name: role.replicas.start for name, role in spec.roles.items()},
        order=Order(spec.routing.order),
        gateways=spec.routing.replicas,
        handoff_seconds=asked.handoff_seconds,
        client_timeout_seconds=spec.routing.request_timeout.seconds,
        startup_seconds=max(engine.start_seconds for engine in asked.engines.values()),
    )
    return scenario, asked


def of_profile(path: Path, *, max_sequences: int, max_batch_tokens: int, batching: Batching) -> tuple[Engine, float]:
    """Read a simulated engine's profile (docs/design/interfaces.md): the engine, and its start-up seconds.

    Raises ValueError, naming the file and the field.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
        prefill, decode = content["prefill"], content["decode"]
        per_token = float(content["bytesPerToken"]) / float(content["transferBytesPerSecond"])
        engine = Engine(
            prefill=(float(prefill["a"]), float(prefill["b"]), float(prefill.get("c", 0.0))),
            decode=(
                float(decode["g0"]),
                float(decode["g1"]),
                float(decode.get("g2", 0.0)),
                float(decode.get("g3", 0.0)),
            ),
            kv_tokens=int(content["kvTokens"]),
            batch_tokens=max_batch_tokens,
            max_sequences=max_sequences,
            transfer=(0.0, per_token),
            batching=batching,
        )
        return engine, float(content["startupSeconds"])
    except OSError as failure:
        raise ValueError(f"{path}: {failure.strerror or failure}") from failure
    except KeyError as failure:
        raise ValueError(f"{path}: {failure.args[0]} is missing; a profile has startupSeconds, kvTokens, prefill, decode,"
                         " transferBytesPerSecond and bytesPerToken") from failure  # fmt: skip
    except (TypeError, AttributeError, ValueError, ZeroDivisionError, OverflowError) as failure:
        raise ValueError(f"{path}: {failure}") from failure


def told(scenario: Scenario, attainment: float, *, role_change: bool, budget: int | None) -> law.Service:
    """What an autoscaler is told of a scenario that came from flags."""
    return law.Service(
        limits=law.Limits(
            roles={role: law.RoleLimits(1, 1000, scenario.accelerators.get(role, 1)) for role in scenario.roles},
            accelerators=budget,
            role_change=role_change,
        ),
        objectives=law.Objectives(scenario.objectives.ttft_seconds, scenario.objectives.tpot_seconds, attainment),
        engines={role: _told(scenario.engine_of(role), scenario.startup_seconds) for role in scenario.roles},
        handoff_seconds=0.0 if scenario.aggregated else scenario.handoff_seconds,
    )


def _told(engine: Engine, start_seconds: float) -> law.Engine:
    per_token = engine.transfer[1]
    return law.Engine(
        prior=Polynomial(
            prefill=engine.prefill,
            decode=engine.decode,
            kv_tokens=engine.kv_tokens,
            kv_bytes_per_token=1.0 if per_token else 0.0,
            transfer_bytes_per_second=1 / per_token if per_token else float("inf"),
        ),
        max_sequences=engine.max_sequences,
        max_batch_tokens=engine.batch_tokens,
        start_seconds=start_seconds,
    )


def _engine(service: InferenceService, role: str, known: law.Engine) -> Engine:
    batching = service.spec.batching_of(role)
    prior = known.prior
    return Engine(
        prefill=prior.prefill,
        decode=prior.decode,
        kv_tokens=int(prior.kv_tokens),
        batch_tokens=known.max_batch_tokens,
        max_sequences=known.max_sequences,
        transfer=(0.0, prior.transfer_seconds(1)),
        batching=Batching(batching.strategy or "chunked"),
        max_wait_seconds=batching.max_wait.seconds if batching.max_wait else 0.05,
    )
