"""Image archives in docker's format, written without a registry or a builder, and read as far as loading needs it."""

import hashlib
import io
import json
import platform
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.errors import ClusterError

EPOCH = "1970-01-01T00:00:00Z"
BLOCK = 1 << 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Image:
    """One image of an archive: its references, and the digest of its configuration, which identifies its content."""

    references: tuple[str, ...]
    digest: str


def write_archive(out: Path, reference: str, config: Mapping[str, Any], layers: Sequence[Path]) -> str:
    """Write the image `reference` (NAME:TAG, without a registry's host) to `out` and return its configuration's digest.

    `config` is the OCI run configuration (`Entrypoint`, `Env`, `User`, …); `layers` are uncompressed tar files, lowest
    first. Equal input gives equal bytes. `containerd`, `docker load`, `kind load` and `buildah pull` take the result.
    """
    sums = [_sha256(layer) for layer in layers]
    image = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": EPOCH,
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in sums]},
            "history": [{"created": EPOCH, "created_by": "steelyard"} for _ in sums],
        },
        sort_keys=True,
    ).encode()
    digest = hashlib.sha256(image).hexdigest()
    manifest = [{"Config": f"{digest}.json", "RepoTags": [reference], "Layers": [f"{s}.tar" for s in sums]}]
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.new")
    with tarfile.open(draft, "w") as archive:
        for layer_sum, layer in dict(zip(sums, layers, strict=True)).items():
            with layer.open("rb") as content:
                archive.addfile(_member(f"{layer_sum}.tar", layer.stat().st_size), content)
        for name, data in ((f"{digest}.json", image), ("manifest.json", json.dumps(manifest).encode())):
            archive.addfile(_member(name, len(data)), io.BytesIO(data))
    draft.replace(out)
    return digest


def images(archive: Path) -> list[Image]:
    """Read which images `archive` holds; raise `ClusterError` if it is no docker archive."""
    try:
        with tarfile.open(archive) as opened:
            member = opened.extractfile("manifest.json")
            entries = json.load(member) if member else []
        return [Image(tuple(entry["RepoTags"] or ()), _DIGEST.findall(entry["Config"])[-1]) for entry in entries]
    except (OSError, tarfile.TarError, KeyError, IndexError, ValueError) as error:
        raise ClusterError(
            f"{archive} is not an image archive in docker's format ({error}): make it with `docker save` or "
            "`buildah push IMAGE docker-archive:FILE:NAME:TAG`."
        ) from error


def _member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
