"""The common half of the scripts that run inside an engine's environment: argument lists in, readings out, as JSON lines.

Standard library only. Input, on standard input: a list of argument lists. Output, the last line on standard output: for
each of them `{"error": text or null, "read": {option: value}}`, values as text.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from typing import Any


def answer(parser: argparse.ArgumentParser) -> None:
    """Read every list with the parser and print the readings."""
    readings = [_read(parser, arguments) for arguments in json.load(sys.stdin)]
    print(json.dumps(readings))


def _read(parser: argparse.ArgumentParser, arguments: list[str]) -> dict[str, Any]:
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            read = vars(parser.parse_args(arguments))
    except SystemExit:
        return {"error": told.getvalue().strip().splitlines()[-1], "read": {}}
    except Exception as failure:
        return {"error": repr(failure), "read": {}}
    return {"error": None, "read": {name: str(value) for name, value in read.items()}}
