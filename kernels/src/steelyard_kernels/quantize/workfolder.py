"""The folder that a checkpoint grows in, hidden beside its final place and renamed when complete.

After each layer it holds that layer's tensors, the hidden states that the next one reads, and `progress.json`, replaced last: a run
that was killed at any point goes on after the last whole layer. A run with another recipe, source or text starts anew.

The lock is on the folder itself, which another process may rename or remove between our opening and our locking it: whoever has
locked looks whether the folder is still the one with that name, and whether its final place is still free.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from steelyard_kernels.quantize.errors import Busy, Taken

PROGRESS = "progress.json"


class WorkFolder:
    """`with WorkFolder(target) as work:` holds the folder for this process alone, and then `begin` says what for.

    Raises Busy while another process holds it, and Taken where that one has made the target. What holds no files at the end is
    removed, also the folders above it that were not there.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f".{target.name}.unfinished")
        self.progress: dict[str, Any] = {}

    def __enter__(self) -> WorkFolder:
        self._made = [self.path, *(folder for folder in self.path.parents if not folder.exists())]
        self._lock = self._locked()
        if self.target.exists():
            self.remove()
            self.__exit__()
            raise taken(self.target)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the first that is gone, or holds files
            for folder in self._made:
                folder.rmdir()
        os.close(self._lock)

    def begin(self, fingerprint: str, restart: bool = False) -> None:
        """Go on where an earlier run with that fingerprint stopped, else (or with `restart`) begin anew."""
        self.progress = {} if restart else self._earlier(fingerprint)
        if not self.progress:
            for entry in self.path.iterdir():
                entry.unlink()
            self.progress = {"fingerprint": fingerprint, "layers": [], "tensors": {}}

    @property
    def done(self) -> int:
        """Layers that are finished."""
        return len(self.progress["layers"])

    def state(self) -> dict[str, Tensor]:
        """The hidden states after the last finished layer."""
        return load_file(self.path / self._state(self.done))

    def add_layer(self, file: str, tensors: dict[str, Tensor], state: dict[str, Tensor], found: dict[str, Any]) -> None:
        """Finish one more layer; `found` is kept for the report."""
        self.add_tensors(file, tensors)
        if state:
            _save(state, self.path / self._state(self.done + 1))
        self.progress["layers"].append(found)
        unfinished = self.path / f".{PROGRESS}"
        unfinished.write_text(json.dumps(self.progress))
        os.replace(unfinished, self.path / PROGRESS)
        (self.path / self._state(self.done - 1)).unlink(missing_ok=True)

    def add_tensors(self, file: str, tensors: dict[str, Tensor]) -> None:
        """Write one file of the checkpoint."""
        _save(tensors, self.path / file, metadata={"format": "pt"})
        (self.path / file).chmod(0o644)  # safetensors makes files that only their owner can read
        self.progress["tensors"] |= {name: [file, tensor.nbytes] for name, tensor in tensors.items()}

    def finish(self) -> None:
        """Take the scaffolding away and give the folder its name."""
        for name in (PROGRESS, self._state(self.done)):
            (self.path / name).unlink(missing_ok=True)
        os.rename(self.path, self.target)

    def remove(self) -> None:
        """Leave nothing behind; the empty folder goes at the end."""
        with suppress(OSError):
            for entry in self.path.iterdir():
                entry.unlink()

    def _locked(self) -> int:
        """The descriptor that holds the lock, of the folder that has the name now."""
        while True:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                lock = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:  # renamed or removed in between
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.stat(self.path)):
                    return lock
            except BlockingIOError as error:
                os.close(lock)
                raise Busy(f"another run is writing {self.target}; wait for it or name another folder") from error
            except FileNotFoundError:
                pass
            os.close(lock)

    def _earlier(self, fingerprint: str) -> dict[str, Any]:
        path = self.path / PROGRESS
        if not path.is_file():
            return {}
        found = json.loads(path.read_text())
        return dict(found) if found.get("fingerprint") == fingerprint else {}

    def _state(self, layers: int) -> str:
        return f"state-{layers:05}.safetensors"


def taken(target: Path) -> Taken:
    """What to raise where there is something in the target's place."""
    return Taken(f"{target} exists; name a new folder")


def _save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write one file. safetensors tells of a failing disk by an error of its own, which is no OSError."""
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
