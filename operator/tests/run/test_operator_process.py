"""The operator as a process: wrong settings end it with status 2 and one line that names them; logs are JSON lines."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

from steelyard.run.logs import JsonLines


def test_wrong_settings_end_the_process_with_status_2(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text("images: {gateway: g}\n")
    program = [sys.executable, "-c", "from steelyard.run.main import main; main()", "--config", str(file)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    line = json.loads(done.stderr)
    assert line["level"] == "error"
    assert "images.engine" in line["message"]


def test_a_log_line_has_its_extras_and_its_traceback() -> None:
    try:
        raise ValueError("no\nnewline")
    except ValueError:
        record = logging.LogRecord("steelyard.x", logging.WARNING, "f", 1, "failed: %s", ("a\nb",), sys.exc_info())
    record.service = "team-a/chat"
    text = JsonLines().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["message"], line["service"]) == ("warning", "failed: a\nb", "team-a/chat")
    assert "ValueError" in line["traceback"]
