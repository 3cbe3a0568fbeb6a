"""`python -m bench.evidence [NAME…]`, in `operator/`, or `make evidence [ONLY=NAME]`: one JSON line of figures an item.

Each line has `name`, `ok`, `worst` and the CPU it took. With names they are printed, and kept in docs/evidence too with `--write`.
Without names every item runs in a process of its own, is kept, and the pages of docs/evidence are made anew; `--pages` only makes
the pages anew, from the figures that are kept. Exit status 1 if an item is not ok.
"""

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.evidence import kept, pages
from bench.evidence.items import ITEMS, alone, measured


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.evidence", description="Evidence, one JSON line an item.")
    parser.add_argument("names", nargs="*", choices=[*ITEMS, []], help="items; default: all, kept in docs/evidence")
    parser.add_argument("--write", action="store_true", help="keep the figures of these items in docs/evidence")
    parser.add_argument(
        "--pages", action="store_true", help="run nothing; make the pages from the figures that are kept"
    )
    parser.add_argument("--list", action="store_true", help="name the items and what they show")
    options = parser.parse_args()
    if options.list:
        for name, item in ITEMS.items():
            print(f"{name:16} {'pinned' if item.pinned else '':6} {item.words}")
        return 0
    if options.pages:
        pages.refresh(kept.read())
        return 0
    if options.names:
        found = [measured(name) for name in options.names]
        for figures in found:
            _tell(figures)
            if options.write:
                kept.keep(figures)
    else:
        found = _all()
    if options.write or not options.names:
        pages.refresh(kept.read())
    return 0 if all(figures["ok"] for figures in found) else 1


def _all() -> list[dict[str, Any]]:
    """Every item in its own process, so that neither memory nor caches of one count for another."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found = []
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=len(ITEMS))
        for name in ITEMS:
            bar.update(task, description=name)
            figures = alone(name)
            _tell(figures)
            kept.keep(figures)
            found.append(figures)
            bar.advance(task)
    return found


def _tell(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    sys.exit(main())
