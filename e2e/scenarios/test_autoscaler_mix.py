"""A mix that moves under a fixed budget: prompts first, then answers. The ratio follows by role changes alone.

Beside the service that scales itself stand its rivals, of the same size and with every static ratio that could be best, and
each is given the same requests at the same moments. `e2e/data/mix.json` holds services, trace and what was measured in several
runs; `operator/tests/sim/test_against_a_cluster.py` holds the simulator to them. Their figures come from this test, which
leaves those of its run in `e2e/out/mix.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from steelyard.api.labels import GATEWAY_PORT

from e2e import monitoring
from e2e.cache import REPOSITORY
from e2e.load import Arrival, Bounds, Objectives, Outcome, Result, Running, Spec, Target, start_load, summarise
from e2e.load.running import Launch
from e2e.platform import Platform
from e2e.scaled import Scaled, monitored, ticks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE = "autoscaler-mix"
MIX: dict[str, Any] = json.loads((REPOSITORY / "e2e" / "data" / "mix.json").read_text())
OUT = REPOSITORY / "e2e" / "out" / "mix.json"
SCHEDULE = tuple(Arrival(*row) for row in MIX["trace"])
SIZE, SWITCH = MIX["size"], MIX["switchSeconds"]
BETTER = 0.05  # by which it must be better than the best static ratio
TICKS = 3  # from the switch to the first role change: two, after a scrape that can have seen it
ROLES = re.compile(r"prefill \d+→(?P<prefill>\d+), decode \d+→(?P<decode>\d+) \(role change\)")


def manifest(name: str, ratio: str | None) -> dict[str, Any]:
    """The service; with a ratio it stays at that one."""
    spec = json.loads(json.dumps(MIX["spec"]))
    numbers = (ratio or MIX["start"]).split(":")
    for role, number in zip(("prefill", "decode"), map(int, numbers), strict=True):
        bounds = {"min": 1, "max": SIZE - 1, "initial": number} if ratio is None else {"min": number, "max": number}
        spec[role] = {"replicas": bounds}
    spec["autoscaling"] = {"mode": "Auto" if ratio is None else "Off", "budget": {"accelerators": SIZE}}
    kind = {"apiVersion": "serving.steelyard.dev/v1alpha1", "kind": "InferenceService"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def fleet(platform: Platform) -> Iterator[tuple[Launch, dict[str, Scaled]]]:
    """Every service by its ratio, `auto` first, with all replicas ready."""
    with monitored(platform) as launch:
        services = {ratio: f"mix-{ratio.replace(':', '-')}" for ratio in ("auto", *MIX["rivals"])}
        bodies = [manifest(name, None if ratio == "auto" else ratio) for ratio, name in services.items()]
        items = [MIX["accelerator"], *bodies]
        try:
            platform.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), NAMESPACE)
            found = {ratio: Scaled(platform, NAMESPACE, name, SIZE) for ratio, name in services.items()}
            for one in found.values():
                platform.wait_available(one.name, NAMESPACE)
                one.until("every replica to be ready", lambda look: look.status["ready"] == f"{SIZE}/{SIZE}", 300)
            fresh = found["auto"].until("fresh metrics", lambda look: look.condition("MetricsFresh")[0] == "True")
            assert sum(fresh.roles.values()) == SIZE
            yield launch, found
        finally:
            platform.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
            platform.kubectl("delete", "accelerator", MIX["accelerator"]["metadata"]["name"], "--ignore-not-found")


def begin(launch: Launch, service: Scaled) -> Running:
    objectives = MIX["spec"]["objectives"]
    promised = Objectives(seconds(objectives["timeToFirstToken"]), seconds(objectives["timePerOutputToken"]))
    target = Target(f"http://{service.address}:{GATEWAY_PORT}", service.name)
    return start_load(Spec(target, SCHEDULE, Bounds(request=320, silence=310), objectives=promised), launch)


def seconds(text: str) -> float:
    return float(text.removesuffix("ms")) / 1000


def test_the_ratio_follows_the_mix_and_beats_every_static_one(fleet: tuple[Launch, dict[str, Scaled]]) -> None:
    launch, services = fleet
    auto = services["auto"]
    before, counted, began = auto.look(), ticks(auto.platform), datetime.now(UTC)
    with ExitStack() as stack:
        runs = {ratio: stack.enter_context(begin(launch, service)) for ratio, service in services.items()}
        results = {"auto": runs["auto"].result(seconds=600)}
        seen = auto.look()
        tick = (datetime.now(UTC) - began) / (ticks(auto.platform) - counted)
        results |= {ratio: run.result(seconds=600) for ratio, run in runs.items() if ratio != "auto"}
    figures = {ratio: attained(ratio, result) for ratio, result in results.items()}
    switch = results["auto"].started + timedelta(seconds=SWITCH)
    splits = changes(auto)
    reading = max((at, split) for at, split in splits if at <= switch)
    answering = [(at, split) for at, split in splits if at > switch]
    first = next(at for at, (_, decode) in answering if decode > reading[1][1])
    took = (first - switch) / tick
    said = {
        "measured": figures,
        "prefillSeconds": {ratio: prefill_seconds(services[ratio]) for ratio in MIX["rivals"]},
        "ticks": round(took, 2),
        "tickSeconds": tick_seconds(auto.platform),
        "splits": [f"{p}:{d}" for _, (p, d) in splits],
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(said, indent=1) + "\n")
    assert seen.asked == before.asked, "roles move, numbers of replicas do not"
    assert set(seen.pods) == set(before.pods), "no pod was replaced"
    assert reading[1][0] > SIZE / 2, said
    assert max(decode for _, (_, decode) in answering) > SIZE / 2, said
    assert took <= TICKS, said
    best = max(found["attainment"] for ratio, found in figures.items() if ratio != "auto")
    assert figures["auto"]["attainment"] >= best + BETTER, said


def attained(ratio: str, result: Result) -> dict[str, float]:
    """The shares that met the objectives, of a run in which every request was answered once."""
    assert not result.broken, f"{ratio}: {result.explain()}"
    assert result.count(Outcome.COMPLETED) == len(SCHEDULE)
    summary = summarise(result)
    assert summary.duplicated == 0
    shares = {"attainment": summary.attainment.both, "ttft": summary.attainment.ttft, "tpot": summary.attainment.tpot}
    return {name: round(share or 0.0, 4) for name, share in shares.items()}


def prefill_seconds(service: Scaled) -> float | None:
    """Mean time of a prompt in its prefill replicas. Engines on a busy machine keep time a little late, and under overload a
    little decides who is in time: the simulator is held to the run at this pace."""
    pods = f'{{namespace="{NAMESPACE}", pod=~"{service.name}-prefill-.*"}}'
    name = "vllm:request_prefill_time_seconds"
    found = monitoring.value(service.platform, f"sum({name}_sum{pods}) / sum({name}_count{pods})")
    return round(found, 4) if found is not None else None


def tick_seconds(platform: Platform) -> float | None:
    """Mean time of a tick, from its first query to its last patch: with the wait for it, the reaction to a sample."""
    name = "steelyard_tick_seconds"
    found = monitoring.value(platform, f"sum(increase({name}_sum[2m])) / sum(increase({name}_count[2m]))")
    return round(found, 3) if found is not None else None


def changes(service: Scaled) -> list[tuple[datetime, tuple[int, int]]]:
    """Every role change that was decided: when, and (prefill, decode) from then on."""
    found = []
    for at, note in service.events("ScaleDecided"):
        match = ROLES.match(note)
        if match:
            found.append((at, (int(match["prefill"]), int(match["decode"]))))
    return found
