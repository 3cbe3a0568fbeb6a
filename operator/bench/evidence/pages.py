"""The pages of docs/evidence: what is written by hand stays, what stands between two marks is made from the figures.

    <!-- figures: distserve -->
    …
    <!-- end -->

Plots are files beside the pages; `svg_of` says which. A block whose item was never run says so.
"""

import re
from pathlib import Path

from bench.evidence import blocks_autoscaler, blocks_simulator, plots_of, summary
from bench.evidence.kept import FOLDER, Figures

MARK = re.compile(r"<!-- figures: (?P<name>[a-z0-9-]+) -->\n.*?<!-- end -->\n", re.DOTALL)
BLOCKS = {**blocks_simulator.BLOCKS, **blocks_autoscaler.BLOCKS}


def refresh(figures: Figures, folder: Path = FOLDER) -> None:
    """Make all pages and plots anew."""
    for page in sorted(folder.glob("*.md")):
        page.write_text(filled(page.read_text(), figures))
    for name, svg in plots_of.drawn(figures).items():
        (folder / name).write_text(svg)


def filled(text: str, figures: Figures) -> str:
    """Fill every block. Raises KeyError for a mark that names no block."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name == "summary":
            body = summary.table_of(figures)
        elif name in figures:
            body = BLOCKS[name](figures[name])
        else:
            _ = BLOCKS[name]
            body = f"Not run yet: `make evidence ONLY={name}`."
        return f"<!-- figures: {name} -->\n{body.rstrip()}\n<!-- end -->\n"

    return MARK.sub(block, text)
