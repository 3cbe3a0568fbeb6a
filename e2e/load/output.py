"""A run's files: `requests.jsonl` (one line per request), `summary.json`, `report.html`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from e2e.load.report import html
from e2e.load.running import Result
from e2e.load.summary import Summary
from e2e.load.wording import asked


def write(result: Result, summary: Summary, folder: Path) -> None:
    """Write the three files; an earlier run's are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "requests.jsonl").open("w") as lines:
        for record in result.records:
            figures = {"ttft": record.ttft, "ttft_from_sent": record.ttft_from_sent, "tpot": record.tpot}
            lines.write(json.dumps({**asdict(record), **figures}) + "\n")
    document = {
        **summary.document(),
        "title": result.spec.title,
        "started": result.started.isoformat(),
        "marks": [asdict(mark) for mark in result.marks],
        "asked": asked(result.spec),
    }
    (folder / "summary.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / "report.html").write_text(html(result, summary))
