"""The command line `steelyard`, which kubectl also finds as `kubectl steelyard` under the name kubectl-steelyard."""

from importlib import metadata

import typer

from steelyard.cli.crds import crds
from steelyard.cli.explain import explain_command
from steelyard.cli.plan import plan_command
from steelyard.cli.render import render
from steelyard.cli.simulate import simulate_command

app = typer.Typer(
    name="steelyard",
    help="Disaggregated LLM serving on Kubernetes, balanced by its objectives.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(crds)
app.command()(render)
app.command("plan")(plan_command)
app.command("simulate")(simulate_command)
app.command("explain")(explain_command)


@app.command()
def version() -> None:
    """Print the version of this program."""
    typer.echo(metadata.version("steelyard"))


def main() -> None:
    """Run the command line."""
    app()
