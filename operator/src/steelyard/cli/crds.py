"""`steelyard crds`: print, write or check the CustomResourceDefinitions and the reference pages made from them."""

from pathlib import Path
from typing import Annotated

import typer

from steelyard.api import crd, reference
from steelyard.cli import abilities_page, generated

UNWRITABLE = 2


def crds(
    out: Annotated[Path | None, typer.Option(help="Folder to write the CRDs to; without it they are printed.")] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Folder to write the reference pages to, one a kind, and one of engines.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; show a diff and exit with 1 on any.")] = False,
) -> None:
    """Make the CustomResourceDefinitions (and reference pages) from the types.

    For a cluster:  steelyard crds | kubectl apply --server-side -f -

    Exit codes: 0 done or nothing stale, 1 stale files (--check), 2 wrong usage.
    """
    files = {out / name: text for name, text in crd.files().items()} if out else {}
    if docs:
        files |= {docs / f"{kind.name.lower()}.md": reference.page(kind) for kind in crd.KINDS}
        files[docs / "engines.md"] = abilities_page.page()
    if not files:
        if check:
            raise typer.BadParameter("--check compares files; say which with --out or --docs")
        typer.echo("---\n".join(crd.files().values()), nl=False)
    elif check:
        if stale := generated.difference(files):
            typer.echo(stale, nl=False)
            typer.echo("error: generated files are stale; run `make generate` and commit the result", err=True)
            raise typer.Exit(1)
    else:
        try:
            written = generated.write(files)
        except OSError as failure:
            flag = "--out" if out and str(failure.filename).startswith(str(out)) else "--docs"
            told = f"{flag}: {failure.filename}: {failure.strerror or failure}; name a folder where you may write"
            typer.echo(told, err=True)
            raise typer.Exit(UNWRITABLE) from failure
        for path in written:
            typer.echo(f"wrote {path}", err=True)
