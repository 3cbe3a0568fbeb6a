"""The backends that use what others made: kind (with a fake runner) and an existing context."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from e2e.cluster import ClusterError, attach, create, kind, make, paths, remove
from e2e.cluster.cluster import recorded_backend
from e2e.cluster.context import ContextCluster
from e2e.cluster.kind import KindCluster, configuration


class FakeKind:
    """Stands for the program `kind`: remembers calls, the configuration it was given, and the clusters it has."""

    def __init__(self, *clusters: str) -> None:
        self.clusters = list(clusters)
        self.calls: list[str] = []
        self.configuration: dict[str, object] = {}

    def __call__(self, command: Sequence[str]) -> str:
        self.calls.append(" ".join(command))
        match list(command):
            case ["kind", "get", "clusters"]:
                return "\n".join(self.clusters)
            case ["kind", "create", "cluster", "--name", name, *options]:
                self.configuration = yaml.safe_load(Path(options[options.index("--config") + 1]).read_text())
                self.clusters.append(name)
            case ["kind", "delete", "cluster", "--name", name]:
                self.clusters.remove(name)
        return ""


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "output", lambda name: tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("nodes", "roles"),
    [(1, ["control-plane"]), (2, ["control-plane", "worker"]), (4, ["control-plane", "worker", "worker", "worker"])],
)
def test_kind_gets_as_many_nodes_as_asked_and_keeps_its_network(nodes: int, roles: list[str]) -> None:
    made = configuration(nodes)
    assert [node["role"] for node in made["nodes"]] == roles
    assert made["apiVersion"] == "kind.x-k8s.io/v1alpha4"
    assert "networking" not in made


def test_a_kind_cluster_is_made_once_loaded_and_removed(outputs: Path) -> None:
    fake = FakeKind("other")
    cluster = KindCluster("demo", fake)
    cluster.create(2)
    assert fake.configuration == configuration(2)
    assert any(f"--kubeconfig {outputs}/demo/kubeconfig" in call for call in fake.calls)
    assert recorded_backend("demo") == "kind"

    cluster.create(2)
    assert sum(call.startswith("kind create") for call in fake.calls) == 1
    assert fake.calls[-1].startswith("kind export kubeconfig --name demo")

    cluster.load([Path("/a.tar"), Path("/b.tar")])
    assert fake.calls[-2:] == [f"kind load image-archive --name demo /{x}.tar" for x in "ab"]

    cluster.down()
    assert fake.clusters == ["other"]
    assert recorded_backend("demo") is None
    cluster.down()
    assert fake.clusters == ["other"]


def test_kinds_own_words_reach_the_user() -> None:
    with pytest.raises(ClusterError, match="no-such-program-at-all is not on PATH"):
        kind.run(["no-such-program-at-all"])
    with pytest.raises(ClusterError, match="boom"):
        kind.run(["sh", "-c", "echo boom >&2; exit 3"])


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that knows two nodes, refuses to delete, and writes down how it is called; returns what it wrote."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
echo "$@" >>{calls}
case "$*" in
*"get nodes"*) echo n1 n2 ;;
*delete*) echo "not allowed" >&2; exit 1 ;;
*apply*) cat ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return calls


def test_kubectl_takes_input_and_its_refusal_becomes_an_error(outputs: Path, kubectl: Path) -> None:
    cluster = _context(outputs, "work")
    assert cluster.kubectl("apply", "-f", "-", input="a: 1") == "a: 1"
    with pytest.raises(ClusterError, match="kubectl delete pod x: not allowed"):
        cluster.kubectl("delete", "pod", "x")
    assert f"--kubeconfig={outputs}/it/kubeconfig apply -f -" in kubectl.read_text()


def test_a_context_once_agreed_to_is_used_again_without_looking_at_the_current_one(
    outputs: Path, kubectl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _context(outputs, "work")
    monkeypatch.setattr(make, "look", lambda wanted: pytest.fail("the current context was looked at"))
    cluster = create("it", accelerators=3)
    assert isinstance(cluster, ContextCluster)
    assert yaml.safe_load(cluster.kubeconfig.read_text()) == {"current-context": "work"}
    patches = [line for line in kubectl.read_text().splitlines() if "patch" in line]
    assert [line.split()[3] for line in patches] == ["n1", "n2"]
    assert all('"steelyard.dev/simulated-accelerator": "3"' in line for line in patches)
    assert isinstance(attach("it"), ContextCluster)
    assert remove("it")
    with pytest.raises(ClusterError, match="up --name it"):
        attach("it")


def _context(outputs: Path, name: str) -> ContextCluster:
    cluster = ContextCluster("it")
    cluster.record()
    cluster.kubeconfig.write_text(yaml.safe_dump({"current-context": name}))
    return cluster


def test_a_cluster_of_others_is_forgotten_and_not_removed(outputs: Path) -> None:
    cluster = _context(outputs, "work")
    (outputs / "it" / "demo.json").touch()
    cluster.down()
    assert [file.name for file in (outputs / "it").iterdir()] == ["demo.json"]


def test_images_cannot_be_put_on_the_nodes_of_others(outputs: Path) -> None:
    with pytest.raises(ClusterError, match="push them to a registry"):
        _context(outputs, "work").load([Path("/a.tar")])
