"""A hub on loopback with the repository that the loader's tests bring, and where to."""

from pathlib import Path

import pytest
from steelyard.loader import store as store_module
from steelyard.loader import transfer
from steelyard.loader.store import Store

from e2e.hub import Repositories

REPOSITORY, KEY = "org/model", "org--model"
BIG = bytes(range(256)) * 4096  # 1 MiB
FILES = {
    "config.json": b'{"architectures": ["Tiny"]}',
    "model.safetensors": BIG,
    "pytorch_model.bin": b"the same once more",
    "onnx/model.onnx": b"and again",
    "tokenizer/vocab.txt": b"a\nb\n",
    "empty.txt": b"",
}
NEEDED = {"config.json", "model.safetensors", "tokenizer/vocab.txt", "empty.txt"}


def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", KEY)


def repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repositories:
    """A hub with `FILES`; its loader does not pause between tries."""
    folder = tmp_path / "hub"
    for name, content in FILES.items():
        path = folder / REPOSITORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    monkeypatch.setattr(transfer.fetch, "__defaults__", (lambda seconds: None,))
    monkeypatch.setattr(store_module, "PAUSES_SECONDS", (0.0, 0.0))
    return Repositories(folder)
