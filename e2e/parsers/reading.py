"""Have an engine's own parser read argument lists; its environment is made when it is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cache import cached, content_key
from e2e.errors import ToolError
from e2e.vllm import environment

FOLDER = Path(__file__).parent
SGLANG = ("sglang==0.5.23", "orjson==3.11.4")  # its parser needs nothing else that vLLM's environment lacks
SECONDS = 900  # importing an engine takes minutes on a starved machine

Say = Callable[[str], None]


@dataclass(frozen=True)
class Reading:
    """What a parser made of one argument list; `error` is its own message, None where it took the list."""

    error: str | None
    read: dict[str, str]


def vllm(lists: Sequence[Sequence[str]], say: Say) -> list[Reading]:
    """Read lists of arguments behind `vllm serve`."""
    return _ask(environment.python(say), "read_vllm.py", [], lists)


def sglang(lists: Sequence[Sequence[str]], say: Say) -> list[Reading]:
    """Read lists of arguments behind `python3 -m sglang.launch_server`."""
    interpreter = environment.python(say)
    return _ask(interpreter, "read_sglang.py", [_sglang_packages(interpreter, say)], lists)


def _sglang_packages(interpreter: Path, say: Say) -> Path:
    """The folder with SGLang's package; about 40 MB are fetched when no cache has it."""

    def build(folder: Path) -> None:
        say("fetching SGLang for its argument parser, once")
        command = ["uv", "pip", "install", "--quiet", "--no-deps", "--python", str(interpreter)]
        subprocess.run([*command, "--target", str(folder / "packages"), *SGLANG], check=True)

    version = ".".join(map(str, sys.version_info[:3]))
    return cached("sglang", content_key([*SGLANG, version]), build) / "packages"


def _ask(interpreter: Path, script: str, beside: list[Path], lists: Sequence[Sequence[str]]) -> list[Reading]:
    variables = environment.variables()
    variables["PYTHONPATH"] = ":".join(map(str, (FOLDER, *beside)))
    done = subprocess.run(
        [str(interpreter), str(FOLDER / script)],
        env=variables, input=json.dumps([list(one) for one in lists]), capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise ToolError(f"{script} ended with status {done.returncode}: {done.stderr[-2000:]}")
    return [Reading(**one) for one in json.loads(done.stdout.strip().splitlines()[-1])]
