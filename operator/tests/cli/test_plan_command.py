"""`steelyard plan`: what it answers, what it writes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from bench.evidence import data
from bench.evidence.engines import (
    DISTSERVE_DECODE,
    DISTSERVE_OVERHEAD,
    DISTSERVE_PIPELINE,
    DISTSERVE_PREFILL,
)
from operator_bodies import KNOWN, service_body
from steelyard.api.service import InferenceService
from steelyard.cli.main import app
from steelyard.cli.plan_manifest import manifest
from steelyard.cli.plan_question import Asked, Planned, planned
from steelyard.cli.refusing import refused
from steelyard.sim.planner import Answer, answer
from typer.testing import CliRunner

SMALL = ("--rate", "6", "--prompt-tokens", "1500", "--output-tokens", "150", "--ttft", "1s", "--tpot", "50ms")


def plan(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plan", *arguments])


def answered(*arguments: str) -> dict[str, Any]:
    result = plan(*arguments, "--json", "-")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return answered("--model", "Qwen/Qwen3-32B", "--accelerator", "h100", *SMALL)


def test_the_chosen_option_keeps_the_promise_in_play(small: dict[str, Any]) -> None:
    assert small["chosen"]["attainment"] >= 0.95
    assert {one["topology"] for one in small["played"]} == {"Aggregated", "Disaggregated"}
    assert small["chosen"]["accelerators"] == min(
        one["accelerators"] for one in small["played"] if one["attainment"] >= 0.95
    )


def test_it_says_which_wins(small: dict[str, Any]) -> None:
    sizes = {one["topology"]: one["accelerators"] for one in small["played"]}
    word = {-1: "apart wins", 0: "a draw", 1: "one pool that does both wins"}
    sign = (sizes["Disaggregated"] > sizes["Aggregated"]) - (sizes["Disaggregated"] < sizes["Aggregated"])
    assert word[sign] in small["winner"]


def test_bounds_memory_and_sensitivity_are_told(small: dict[str, Any]) -> None:
    for role, bound in small["bounds"].items():
        assert 0 < bound["tpot"] < 0.05
        assert small["memory"][role]["kv"] > 0
    changes = {line["change"]: line["accelerators"] for line in small["sensitivity"]}
    assert changes["requests × 2"] >= changes["requests × 0.5"]
    assert changes["every step 20 % slower"] >= small["chosen"]["accelerators"] - 1


def test_several_kinds_of_hardware_are_compared() -> None:
    found = answered("--model", "Qwen/Qwen3-8B", "--accelerator", "h100", "--accelerator", "l40s", *SMALL)
    named = {
        name
        for kind in ("disaggregated", "aggregated")
        for option in found[kind]
        for name in option["accelerators_named"]
    }
    assert named == {"h100", "l40s"}
    assert found["chosen"]["cost_per_hour"] == min(
        one["cost_per_hour"] for one in found["played"] if one["attainment"] >= 0.95
    )


def test_the_written_service_is_one_that_would_be_served(tmp_path: Path) -> None:
    file = tmp_path / "planned.yaml"
    result = plan("--model", "Qwen/Qwen3-32B", "--accelerator", "h100", *SMALL, "--write", str(file))
    assert result.exit_code == 0, result.output
    body = yaml.safe_load(file.read_text())
    service, reasons = refused(body, KNOWN)
    assert service is not None
    assert reasons == []
    again = plan("-f", str(file), *SMALL)
    assert again.exit_code == 0, again.output


OWN_OF_ROLES = {
    "resources": {"requests": {"cpu": "6", "memory": "48Gi"}, "limits": {"memory": "64Gi"}},
    "sharedMemory": "16Gi",
    "batching": {"maxSequences": 128},
    "template": {
        "metadata": {"labels": {"team": "chat"}},
        "spec": {
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
            "containers": [{"name": "engine", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
        },
    },
    "quantization": {"attention": "none"},
}
OWN = {
    "rollout": {"maxSurge": 2, "maxUnavailable": "10%"},
    "model": {"uri": "hf://Qwen/Qwen3-8B", "contextLength": 8192, "servedName": "qwen"},
    "engine": {"name": "vllm", "memoryUtilization": 0.85, "args": ["--seed=7"]},
    "quantization": {"losslessCompression": False},
    "objectives": {"timeToFirstToken": "1s", "timePerOutputToken": "50ms", "attainment": 95.0, "window": "10m"},
    "autoscaling": {
        "mode": "Recommend",
        "budget": {"costPerHour": 200.0},
        "ratio": {"min": "1:8", "max": "4:1"},
        "roleChange": "Never",
    },
    "routing": {"order": "fcfs"},
}
DECIDED = {"replicas": {"min": 3, "max": 9}, "parallelism": {"tensor": 8}, "accelerator": "h200"}
META = {"labels": {"team": "chat"}, "annotations": {"example.com/owner": "me"}}


def written_with(roles: tuple[str, ...]) -> dict[str, Any]:
    """A service on which everything is written that a plan must leave alone, and in its roles what a plan decides."""
    topology = "Aggregated" if roles == ("aggregated",) else "Disaggregated"
    spec: dict[str, Any] = {**OWN, "topology": topology, "accelerator": "h100", "parallelism": {"tensor": 4}}
    spec["quantization"] = {
        "losslessCompression": False,
        "weights": "none",
        "source": "Checkpoint",
        "activations": "none",
    }
    for role in roles:
        spec[role] = {**OWN_OF_ROLES, **DECIDED, "quantization": {"attention": "none", "weights": "none"}}
    body = service_body(spec, **META)
    body["spec"]["model"] = OWN["model"]
    return body


def lost(own: Any, found: Any, path: str = "spec") -> list[str]:
    """Paths of values that are not there any more, or others."""
    if isinstance(own, Mapping) and isinstance(found, Mapping):
        return [line for name in own for line in lost(own[name], found.get(name), f"{path}.{name}")]
    return [] if own == found else [f"{path}: {own!r} became {found!r}"]


@pytest.fixture(scope="module")
def both_ways(tmp_path_factory: pytest.TempPathFactory) -> tuple[Planned, Answer]:
    file = tmp_path_factory.mktemp("plan") / "isv.yaml"
    file.write_text(yaml.safe_dump(written_with(("prefill", "decode"))))
    question = planned(
        Asked(file, (), None, None, (), None, (), "fp8", None, 6.0, 1500.0, 150.0, 0.5, None, None, None, None, None, 0)
    )
    return question, answer(question.question)


@pytest.mark.parametrize("roles", [("prefill", "decode"), ("aggregated",)])
@pytest.mark.parametrize("aggregated", [False, True])
def test_a_plan_is_laid_over_what_the_user_wrote(
    both_ways: tuple[Planned, Answer], roles: tuple[str, ...], aggregated: bool
) -> None:
    question, found = both_ways
    chosen = next(one for one in found.played if one.option.aggregated is aggregated)
    service = InferenceService.read(written_with(roles))
    body = yaml.safe_load(manifest(replace(question, service=service, written=written_with(roles)), chosen))
    made = ("aggregated",) if aggregated else ("prefill", "decode")
    kept = {**OWN, "topology": "Aggregated" if aggregated else "Disaggregated", **dict.fromkeys(made, OWN_OF_ROLES)}
    assert lost(kept, body["spec"]) == []
    assert lost(META, body["metadata"], "metadata") == []
    assert set(body["spec"]) - set(OWN) == {"topology", "accelerator", *made}, (
        "no block of the other topology, no parallelism for all"
    )
    for role, (count, one) in zip(made, chosen.option.pools, strict=True):
        assert body["spec"][role]["replicas"]["initial"] == count
        assert body["spec"][role].get("parallelism", {}).get("tensor", 1) == one.side.layout.tensor
        assert "accelerator" not in body["spec"][role]
        assert "weights" not in body["spec"][role]["quantization"]
    side = chosen.option.decode.side
    assert body["spec"]["accelerator"] == side.accelerator
    assert body["spec"]["quantization"].get("weights", "none") == side.format
    assert body["spec"]["quantization"]["kvCache"] == "fp8"
    assert ("activations" in body["spec"]["quantization"]) == (side.source != "Load"), "that loading decides"
    assert body["spec"]["autoscaling"]["budget"]["accelerators"] >= chosen.option.accelerators
    again, reasons = refused(body, KNOWN)
    assert again is not None
    assert reasons == []


def test_a_page_has_the_table_and_plots(tmp_path: Path) -> None:
    file = tmp_path / "plan.html"
    assert plan("--model", "Qwen/Qwen3-8B", *SMALL, "--html", str(file)).exit_code == 0
    text = file.read_text()
    assert text.count("<svg") >= 2
    assert "apart" in text


def test_a_refused_service_is_refused_as_by_the_operator(tmp_path: Path) -> None:
    file = tmp_path / "isv.yaml"
    spec = {
        "engine": {"name": "vllm"},
        "accelerator": "h100",
        "model": {"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"},
    }
    file.write_text(yaml.safe_dump(service_body(spec)))
    result, rendered = plan("-f", str(file)), CliRunner().invoke(app, ["render", "-f", str(file)])
    assert result.exit_code == rendered.exit_code == 2
    assert result.stderr == rendered.stderr
    assert "141 GB of weights" in result.stderr


def test_too_small_a_budget_is_told_with_what_is_needed() -> None:
    result = plan(
        "--model", "Qwen/Qwen3-32B", "--accelerator", "h100", "--rate", "80", "--prompt-tokens", "4000", "--budget", "2"
    )
    assert result.exit_code == 3
    assert "2 are allowed" in result.stderr


def test_objectives_below_the_hardware_are_told_with_the_bound() -> None:
    result = plan("--model", "Qwen/Qwen3-32B", "--accelerator", "a100", "--tpot", "1ms")
    assert result.exit_code == 3
    assert "a100 with TP1 needs at least" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "-f with a manifest"),
        (("--model", "org/none"), "--config"),
        (("--model", "Qwen/Qwen3-8B", "--accelerator", "h2000"), "h2000"),
        (("--model", "Qwen/Qwen3-8B", "--accelerator", "cpu"), "cpu"),
        (("--model", "Qwen/Qwen3-8B", "--attainment", "0"), "--attainment"),
        (("--model", "Qwen/Qwen3-8B", "--rate", "-1"), "--rate"),
        (("--profile", "x.json"), "--trace"),
        (("-f", "/no/such/file"), "/no/such/file"),
    ],
)
def test_what_makes_no_sense_is_told_by_its_flag(arguments: tuple[str, ...], word: str) -> None:
    result = plan(*arguments)
    assert result.exit_code == 1
    assert word in " ".join(result.stderr.split())


def test_distserves_sweep_is_best_at_four_and_four(tmp_path: Path) -> None:
    """OPT-13B on eight A100: DistServe's fits and its memory table (66,144 tokens), its request set, objectives 250/100 ms."""
    a, b, c = DISTSERVE_PREFILL
    base, each = DISTSERVE_OVERHEAD
    g0, g1, g3 = DISTSERVE_DECODE
    kv = 66_144
    profile = {
        "startupSeconds": 60, "kvTokens": kv, "bytesPerToken": 819_200, "transferBytesPerSecond": 1e12,
        "prefill": {"a": (a + base + DISTSERVE_PIPELINE) / 1000, "b": (b + each) / 1000, "c": c / 1000},
        "decode": {"g0": (g0 + base) / 1000, "g1": (g1 + each) * kv / 1000, "g2": 0, "g3": g3 / 1000},
    }  # fmt: skip
    engine, load = tmp_path / "opt-13b.json", tmp_path / "load.csv"
    engine.write_text(json.dumps(profile))
    fitting = [x for x in data.azure_conversation(1.0) if x.prompt + x.answer <= 2048 and x.answer > 1][:400]
    at = np.cumsum([0.0, *np.random.RandomState(0).gamma(1.0, 1.0, size=399)])
    lines = [f"{t:.4f},{x.prompt},{x.answer}" for t, x in zip(at, fitting, strict=True)]
    load.write_text("\n".join(["at,prompt_tokens,output_tokens", *lines]) + "\n")
    result = plan(
        "--profile", str(engine), "--trace", str(load), "--budget", "8", "--rates", "4,8,12,16,20", "--ttft", "250ms",
        "--tpot", "100ms", "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["best"] == "4:4"
    assert len(found["cells"]) == 7 * 5


def test_the_command_line_starts_without_the_client_of_kubernetes() -> None:
    """It is a third of the start, and only `explain` needs it."""
    asked = "import sys, steelyard.cli.main; print('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "False\n"
