"""The folder that a checkpoint grows in, hidden beside its final place and renamed when complete.

After each layer it holds that layer's tensors, the hidden states that the next one reads, and `progress.json`, replaced last: a run
that was killed at any point goes on after the last whole layer. A run with another recipe, source or text starts anew.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from steelyard_kernels.quantize.errors import Busy

PROGRESS = "progress.json"


class WorkFolder:
    """`with WorkFolder(target, fingerprint) as work:` holds the folder for this process alone."""

    def __init__(self, target: Path, fingerprint: str, restart: bool = False) -> None:
        self.target, self.fingerprint, self.restart = target, fingerprint, restart
        self.path = target.with_name(f".{target.name}.unfinished")
        self.progress: dict[str, Any] = {}

    def __enter__(self) -> WorkFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise Busy(f"another run is writing {self.target}; wait for it or name another folder") from error
        self.progress = self._earlier()
        if not self.progress:
            for entry in self.path.iterdir():
                entry.unlink()
            self.progress = {"fingerprint": self.fingerprint, "layers": [], "tensors": {}}
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

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
            save_file(state, self.path / self._state(self.done + 1))
        self.progress["layers"].append(found)
        unfinished = self.path / f".{PROGRESS}"
        unfinished.write_text(json.dumps(self.progress))
        os.replace(unfinished, self.path / PROGRESS)
        (self.path / self._state(self.done - 1)).unlink(missing_ok=True)

    def add_tensors(self, file: str, tensors: dict[str, Tensor]) -> None:
        """Write one file of the checkpoint."""
        save_file(tensors, self.path / file, metadata={"format": "pt"})
        (self.path / file).chmod(0o644)  # safetensors makes files that only their owner can read
        self.progress["tensors"] |= {name: [file, tensor.nbytes] for name, tensor in tensors.items()}

    def finish(self) -> None:
        """Take the scaffolding away and give the folder its name."""
        for name in (PROGRESS, self._state(self.done)):
            (self.path / name).unlink(missing_ok=True)
        os.rename(self.path, self.target)

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _earlier(self) -> dict[str, Any]:
        path = self.path / PROGRESS
        if self.restart or not path.is_file():
            return {}
        found = json.loads(path.read_text())
        return dict(found) if found.get("fingerprint") == self.fingerprint else {}

    def _state(self, layers: int) -> str:
        return f"state-{layers:05}.safetensors"
