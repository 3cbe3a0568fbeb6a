"""`make test`, its parts, `make test-full`: checks in order, a line each as they pass, what failed in full, a count at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field

from e2e.cache import REPOSITORY
from e2e.images import wheels


@dataclass(frozen=True)
class Check:
    """A command that must exit 0; `loud` ones show their output as they run."""

    name: str
    command: tuple[str, ...]
    loud: bool = False
    environment: dict[str, str] = field(default_factory=dict)


LINT = (
    Check("format", ("ruff", "format", "--check", ".")),
    Check("lint", ("ruff", "check", ".")),
    Check("types", ("mypy",)),
    Check("layers", ("lint-imports",)),
    Check("generated files", (sys.executable, "-m", "e2e.generate", "--check")),
    Check("lock", ("uv", "lock", "--check")),
)


def tests(cluster: bool) -> tuple[Check, ...]:
    """The test runs: without a cluster first, since they are quick to fail."""
    environment = {"STEELYARD_GGUF": str(wheels.weights())}
    runs = [
        Check(
            "unit, property and chart tests", ("pytest", "-q", "-m", "not cluster and not engines"), True, environment
        ),
        Check("argument parsers of vLLM and SGLang", ("pytest", "-q", "-m", "engines", "operator/tests/parsers"), True),
        Check("kernels", (sys.executable, "-m", "e2e.kernels", "test"), True),
    ]
    if cluster:
        runs.append(Check("end-to-end", ("pytest", "-q", "-m", "cluster", "e2e/scenarios"), True, environment))
    return tuple(runs)


def _kernels(name: str, *arguments: str) -> Check:
    return Check(name, (sys.executable, "-m", "e2e.kernels", *arguments), True)


# Hours of one core, and environments of several gigabytes.
LEFT_OUT = (
    _kernels("kernels: checkpoints of every format in vLLM", "vllm", "--whole"),
    _kernels("kernels: other libraries' results", "oracles"),
    Check("real vLLM, prefill and decode apart, on a cluster", ("pytest", "-q", "-m", "vllm", "e2e/scenarios"), True),
    Check(
        "a Job that quantizes, with the real image",
        ("pytest", "-q", "-m", "cluster", "e2e/scenarios/test_quantize_job.py"),
        True,
        {"STEELYARD_REAL_QUANTIZE": "1"},
    ),
    _kernels("kernels: every technique on one model", "run", "--", "-m", "steelyard_kernels.cli", "compare", "--json"),
)


def install_llama() -> None:
    """Put the built llama.cpp wheel into the environment of the tests."""
    command = ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", str(wheels.llama_wheel())]
    subprocess.run(command, cwd=REPOSITORY, check=True)


def run(check: Check) -> bool:
    """Run one check and say how it went."""
    print(f"== {check.name}", flush=True)
    started = time.monotonic()
    done = subprocess.run(
        check.command, cwd=REPOSITORY, env={**os.environ, **check.environment}, check=False,
        stdin=subprocess.DEVNULL, capture_output=not check.loud, text=True,
    )  # fmt: skip
    if done.returncode and not check.loud:
        print(done.stdout + done.stderr)
    print(
        f"== {check.name}: {'FAILED' if done.returncode else 'passed'} in {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return done.returncode == 0


def main(arguments: list[str]) -> int:
    """Lint; `--tests` adds the tests, `--cluster` those on a real cluster. `--left-out` runs what none of these does, alone."""
    checks = list(LEFT_OUT if "--left-out" in arguments else LINT)
    if "--tests" in arguments:
        install_llama()
        checks += tests("--cluster" in arguments)
    passed = [run(check) for check in checks]
    print(f"checks: {sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
