"""Building the programs into the cache, two at a time, each at most once per content."""

import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console

from e2e.cache import cache_root, cached
from e2e.cluster import progress, toolchain
from e2e.cluster.errors import ClusterError
from e2e.cluster.programs import PROGRAMS, Program, build_command, key
from e2e.cluster.toolchain import Go

KIND = "bin"
PARALLEL = 2
"""Go compiles in parallel by itself; a second build fills the times when the first one links or waits for a download."""


def ensure(console: Console, programs: Sequence[Program] = PROGRAMS) -> dict[str, Path]:
    """Return the file of every program, building what the cache lacks; the first time takes long, so it shows progress."""
    go = toolchain.find()
    if not all(location(program, go).exists() for program in programs):
        with progress.display(console) as display, ThreadPoolExecutor(PARALLEL) as pool:
            give_up = threading.Event()
            jobs = [pool.submit(_ensure, program, go, display, give_up) for program in programs]
            try:
                for job in as_completed(jobs):
                    job.result()
            except BaseException:  # also when interrupted: the others must not go on for minutes
                give_up.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return {program.name: location(program, go) for program in programs}


def location(program: Program, go: Go) -> Path:
    """Where the cache keeps `program` when built by `go`."""
    return cache_root() / KIND / key(program, go.version) / program.name


def link(files: dict[str, Path], folder: Path, programs: Sequence[Program] = PROGRAMS) -> None:
    """Make `folder` hold every program under all its names, as links into the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        for name in program.links or (program.name,):
            draft = folder / f".{name}"
            draft.unlink(missing_ok=True)
            draft.symlink_to(files[program.name])
            draft.replace(folder / name)


def _ensure(program: Program, go: Go, display: progress.Display, give_up: threading.Event) -> None:
    def build(folder: Path) -> None:
        _build(program, go, folder / program.name, display, give_up)

    cached(KIND, key(program, go.version), build)


def _build(program: Program, go: Go, file: Path, display: progress.Display, give_up: threading.Event) -> None:
    display.started(program.name, program.packages)
    last: deque[str] = deque(maxlen=30)
    compiled = 0
    with subprocess.Popen(
        build_command(program, go.path, file),
        cwd=program.folder,
        env=go.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as building:
        assert building.stderr is not None
        for line in building.stderr:
            last.append(line.rstrip())
            compiled += not line.startswith(("go: ", "#", "\t"))
            display.compiled(program.name, compiled)
            if give_up.is_set():
                building.terminate()
    if building.returncode:
        raise ClusterError(f"{program.name} cannot be built in {program.folder}:\n" + "\n".join(last))
    display.finished(program.name)
