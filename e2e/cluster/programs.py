"""The programs of a local cluster that are built from Go modules, and the keys under which the cache keeps them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import paths

KUBERNETES = "1.37.2"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
FLAGS = ("-trimpath",)
"""Flags of every compilation. All programs share them, because other flags would compile every package again."""


@dataclass(frozen=True)
class Program:
    """A program `name`: the Go package `package` of the module folder `module`, linked with `linker` flags.

    `links` are further names of the same file: the program that holds all of Kubernetes acts by the name it is called by.
    `packages` is about how many packages are compiled, for the progress display. `tags` choose source files.
    """

    name: str
    module: str
    package: str
    packages: int
    linker: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return paths.MODULES / self.module


def _version_flags() -> tuple[str, ...]:
    major, minor, _ = KUBERNETES.split(".")
    values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())


PROGRAMS = (
    Program("kubernetes", "kube", "./allinone", 2786, _version_flags(), COMPONENTS),
    Program("kube-router", "kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router", 961),
    Program("coredns", "coredns-slim", ".", 751),
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", 565),
)
"""Those that a cluster runs on, the longest build first."""

PROMETHEUS = Program(
    "prometheus",
    "prometheus",
    "github.com/prometheus/prometheus/cmd/prometheus",
    1008,
    ("-X github.com/prometheus/common/version.Version=3.16.0",),
    tags=("remove_all_sd", "enable_kubernetes_sd"),
)
"""Runs in a pod, of an image that holds nothing else (`e2e/monitoring`). Of its ways to find targets only Kubernetes' is in."""

PROMTOOL = Program(
    "promtool",
    "prometheus",
    "github.com/prometheus/prometheus/cmd/promtool",
    1010,
    PROMETHEUS.linker,
    tags=PROMETHEUS.tags,
)
"""Evaluates queries over made-up series, and writes a store of them: for tests and benchmarks, never in a cluster."""


def build_command(program: Program, go: Path, out: Path) -> list[str]:
    """The command that builds `program` to `out`; `-v` makes it name each package that it compiles.

    Nothing of the checkout's history goes into a program, so the same sources give the same file in every commit.
    """
    linker = " ".join(("-s", "-w", *program.linker))
    tags = ["-tags", ",".join(program.tags)] if program.tags else []
    return [str(go), "build", "-v", "-buildvcs=false", *tags, "-ldflags", linker, "-o", str(out), program.package]


def key(program: Program, go_version: str) -> str:
    """The cache key of `program`: its module files, its own sources, the flags and Go's MAJOR.MINOR version."""
    digest = hashlib.sha256()
    sources = sorted(
        path for path in program.folder.rglob("*") if path.suffix == ".go" or path.name in ("go.mod", "go.sum")
    )
    for source in sources:
        content = source.read_bytes()
        digest.update(f"{source.relative_to(program.folder)} {len(content)}\n".encode() + content)
    digest.update("\n".join((program.package, *FLAGS, *program.tags, *program.linker, go_version)).encode())
    return digest.hexdigest()[:20]
