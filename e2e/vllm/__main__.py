"""`python -m e2e.vllm ARGUMENT…`: run `python ARGUMENT…` in vLLM's environment, which is made when it is not there."""

from __future__ import annotations

import subprocess
import sys

from e2e.errors import ToolError
from e2e.vllm import environment


def main(arguments: list[str]) -> int:
    """Returns the command's exit status."""
    try:
        interpreter = environment.python(lambda text: print(text, file=sys.stderr, flush=True))
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return subprocess.run([str(interpreter), *arguments], env=environment.variables(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
