"""`make generate`: write every generated file anew, or with `--check` fail when one differs from what the types say."""

from __future__ import annotations

import subprocess
import sys

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("steelyard", "crds", "--out", "crds", "--docs", "docs/reference"),
    (sys.executable, "-m", "charts.generate"),
)


def main(arguments: list[str]) -> int:
    check = ["--check"] if "--check" in arguments else []
    return max(subprocess.run([*command, *check], check=False).returncode for command in COMMANDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
