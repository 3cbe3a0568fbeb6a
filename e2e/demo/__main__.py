"""`python -m e2e.demo run|burst|clean`: `make demo`, its burst alone, `make clean-demo`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from e2e.cache import REPOSITORY
from e2e.cluster import remove
from e2e.demo import run as steps
from e2e.demo.burst.play import HINDSIGHT, PAGE, TRACE, Played, play
from e2e.demo.burst.play import RESULT as BURST
from e2e.platform import Platform, bring_up

NAME = "steelyard"
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
console = Console(highlight=False)


Backend = Annotated[str, typer.Option(help="auto | context | kind | local")]


@app.command()
def run(
    backend: Backend = "auto",
    with_burst: Annotated[
        bool, typer.Option("--burst/--no-burst", help="Play the burst too: some eight minutes.")
    ] = True,
) -> None:
    """Bring everything up, serve one completion, show the proof, play a burst; leaves the service of the completion running."""
    platform, say = up(backend)
    account, missing = steps.run(platform, say)
    tell_completion(account)
    if with_burst:
        console.print()
        tell(play(platform, console, say))
    console.print(
        f"\nWritten to {steps.RESULT.relative_to(REPOSITORY)}. Talk to it (`make clean-demo` takes it down):\n"
    )
    for line in steps.how_to_talk(platform):
        console.print(f"  {line}", soft_wrap=True, markup=False)
    if missing:
        console.print("\nNot shown: " + "; ".join(missing))
        sys.exit(1)


@app.command()
def burst(backend: Backend = "auto") -> None:
    """Bring everything up and play the burst alone."""
    platform, say = up(backend)
    tell(play(platform, console, say))


def up(backend: str) -> tuple[Platform, Callable[[str], None]]:
    """The platform, and how to say what goes on, with seconds since the start."""
    started = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:6.0f} s[/dim]  {text}", soft_wrap=True)

    confirm = typer.confirm if sys.stdin.isatty() else lambda question: False
    return bring_up(NAME, backend, say, console, confirm=confirm), say


def tell_completion(account: steps.Account) -> None:
    """What the completion's account holds, in words."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("prompt", f"{account.prompt_tokens} tokens, prefilled in one pod, decoded in another")
    table.add_row("first token", f"{account.first_token_seconds:.2f} s after the request (port-forward included)")
    table.add_row("KV moved", f"{account.transferred_bytes / 1e6:.1f} MB pulled by the decode pod")
    table.add_row("recomputed", f"{account.decode_recomputed_tokens} of the prompt's tokens by the decode pod")
    table.add_row("text", account.text.strip().replace("\n", " "))
    equal = "yes" if account.texts_equal else "NO"
    table.add_row("same text", f"{equal}, compared with an Aggregated run of the same prompt")
    console.print()
    console.print(table)


def tell(played: Played) -> None:
    """The burst's figures, side by side."""
    table = Table(box=None, pad_edge=False, title="the burst, three times at once", title_justify="left")
    table.add_column(no_wrap=True)
    for name in ("start", "requests", "failed", "attained", "acc.-hours", "ratio moves", "size moves"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, one in played.figures.items():
        table.add_row(
            name, str(played.sizes[name]), str(one.requests), str(one.failed), f"{one.attainment:.1%}",
            f"{one.accelerator_hours:.3f}", str(one.ratio_changes), str(one.replica_changes),
        )  # fmt: skip
    console.print(table)
    console.print(
        f"attained: met both objectives; the simulator foretold {played.foretold:.1%} of {HINDSIGHT}.\n"
        f"Plots, figures and the load: {', '.join(str(one.relative_to(REPOSITORY)) for one in (PAGE, BURST, TRACE))}",
        soft_wrap=True,
    )


@app.command()
def clean() -> None:
    """Take the demo's cluster down."""
    remove(NAME)


if __name__ == "__main__":
    app()
