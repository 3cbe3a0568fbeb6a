"""Runs in vLLM's environment with SGLang's package beside it: read argument lists of its server with its own parser.

The parser needs neither Triton nor a notebook, but modules beside it import them: they get a stand-in.
"""

import argparse
import sys
from unittest.mock import MagicMock

from answer import answer

for name in (
    "triton",
    "triton.language",
    "triton.runtime",
    "triton.runtime.cache",
    "triton.testing",
    "triton.compiler",
):
    sys.modules[name] = MagicMock()
for name in ("IPython", "IPython.display", "traitlets"):
    sys.modules[name] = MagicMock()

from sglang.srt.server_args import ServerArgs  # noqa: E402 (after the stand-ins)

parser = argparse.ArgumentParser(prog="sglang")
ServerArgs.add_cli_args(parser)
answer(parser)
