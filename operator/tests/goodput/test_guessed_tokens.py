"""What guesses are worth to the planner: the law, and `steelyard plan --acceptance`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from operator_bodies import service_body
from steelyard.cli.main import app
from steelyard.decide.model.latency import Polynomial
from steelyard.decide.model.speculation import Guessing, guessed
from typer.testing import CliRunner

ENGINE = Polynomial((0.01, 1e-4, 0.0), (0.02, 0.01, 0.0, 1e-4), kv_tokens=100_000)


@pytest.mark.parametrize(
    ("acceptance", "guesses", "cost", "batch", "speedup", "because"),
    [
        (0.8, 4, 0.0, 0, 3.3616, "1 + .8 + .64 + .512 + .4096, and weights are read once"),
        (0.8, 4, 0.1, 0, 3.3616 / 1.4, "each guess costs a tenth of a step"),
        (1.0, 3, 0.0, 0, 4.0, "all accepted: four tokens a step"),
        (0.0, 3, 0.0, 0, 1.0, "none accepted, and checking is free while weights are read"),
        (0.0, 3, 0.0, 200, 0.04 / 0.1, "none accepted at a large batch: each token is checked for nothing"),
    ],
)
def test_steps_with_guesses(
    acceptance: float, guesses: int, cost: float, batch: int, speedup: float, because: str
) -> None:
    faster = guessed(ENGINE, Guessing(acceptance, guesses, cost))
    found = ENGINE.decode_step_seconds(batch, 0) / faster.decode_step_seconds(batch, 0)
    assert found == pytest.approx(speedup), because
    assert faster.prefill == ENGINE.prefill


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 16), st.floats(0, 1), st.floats(1, 500), st.floats(0, 8000))
def test_more_accepted_is_never_slower(
    less: float, more: float, guesses: int, cost: float, batch: float, context: float
) -> None:
    less, more = sorted((less, more))
    slow, fast = (guessed(ENGINE, Guessing(share, guesses, cost)) for share in (less, more))
    assert fast.decode_step_seconds(batch, context) <= slow.decode_step_seconds(batch, context) * (1 + 1e-12)


def plan(folder: Path, speculation: dict[str, Any] | None, *more: str) -> Any:
    spec = {"engine": {"name": "vllm"}, "accelerator": "h100", "parallelism": {"tensor": 2}}
    body = service_body(spec | ({"speculation": speculation} if speculation else {}))
    body["spec"]["model"] = {"uri": "hf://Qwen/Qwen3-8B", "contextLength": 4096}
    (folder / "isv.yaml").write_text(yaml.safe_dump(body))
    load = ("--rate", "8", "--prompt-tokens", "500", "--output-tokens", "400", "--ttft", "1s", "--tpot", "15ms")
    return CliRunner().invoke(app, ["plan", "-f", str(folder / "isv.yaml"), *load, *more, "--json", "-"])


def test_a_plan_with_good_guesses_needs_no_more_accelerators(tmp_path: Path) -> None:
    speculation = {"method": "ngram", "tokens": 4}
    plain, guessing = (plan(tmp_path, speculation, *more) for more in ((), ("--acceptance", "0.8")))
    assert (plain.exit_code, guessing.exit_code) == (0, 0), plain.stderr + guessing.stderr
    without, with_guesses = (json.loads(one.stdout)["chosen"] for one in (plain, guessing))
    assert with_guesses["accelerators"] <= without["accelerators"]
    assert with_guesses != without


@pytest.mark.parametrize(
    ("speculation", "acceptance", "says"),
    [
        (None, "0.7", "spec.speculation.method other than none"),
        ({"method": "ngram"}, "1.5", "between 0 and 1"),
        ({"method": "draft", "model": "nobody/knows-it"}, "0.7", "cost of a guess is not known"),
    ],
)
def test_what_cannot_be_known_is_refused(
    speculation: dict[str, Any] | None, acceptance: str, says: str, tmp_path: Path
) -> None:
    result = plan(tmp_path, speculation, "--acceptance", acceptance)
    assert result.exit_code == 1
    assert says in " ".join(result.stderr.split())
