"""Building the programs into the cache, two at a time, each at most once per content."""

import fcntl
import os
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from e2e.cluster import paths, progress, toolchain
from e2e.cluster.errors import ClusterError
from e2e.cluster.programs import PROGRAMS, Program, build_command, key
from e2e.cluster.toolchain import Go

PARALLEL = 2
"""Go compiles in parallel by itself; a second build fills the times when the first one links or waits for a download."""


def ensure(console: Console, programs: Sequence[Program] = PROGRAMS) -> dict[str, Path]:
    """Return the file of every program, building what the cache lacks; the first time takes long, so it shows progress."""
    go = toolchain.find()
    files = {program: location(program, go) for program in programs}
    if any(not file.exists() for file in files.values()):
        with _one_builder(console), progress.display(console) as display, ThreadPoolExecutor(PARALLEL) as pool:
            missing = [program for program in programs if not files[program].exists()]
            jobs = [pool.submit(_build, program, go, files[program], display) for program in missing]
            for job in jobs:
                job.result()
    return {program.name: file for program, file in files.items()}


def location(program: Program, go: Go) -> Path:
    """Where the cache keeps `program` when built by `go`."""
    return paths.cache() / "bin" / key(program, go.version) / program.name


def link(files: dict[str, Path], folder: Path, programs: Sequence[Program] = PROGRAMS) -> None:
    """Make `folder` hold every program under all its names, as links into the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        for name in program.links or (program.name,):
            draft = folder / f".{name}"
            draft.unlink(missing_ok=True)
            draft.symlink_to(files[program.name])
            draft.replace(folder / name)


def _build(program: Program, go: Go, file: Path, display: progress.Display) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    display.started(program.name, program.packages)
    last: deque[str] = deque(maxlen=30)
    compiled = 0
    with subprocess.Popen(
        build_command(program, go.path, draft),
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
    if building.returncode:
        raise ClusterError(f"{program.name} cannot be built in {program.folder}:\n" + "\n".join(last))
    draft.replace(file)
    display.finished(program.name)


@contextmanager
def _one_builder(console: Console) -> Iterator[None]:
    """Hold the cache's build lock: a second builder waits and then finds everything built."""
    folder = paths.cache() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print("waiting for another build on this machine")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
