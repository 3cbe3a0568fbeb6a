"""A service whose weights a Job quantizes: the Job first, its failure told, engines on what it made; a second service finds it.

Usually a stand-in quantizes, which reads and writes as `steelyard-quantize` does; with STEELYARD_REAL_QUANTIZE the real one
does, on a checkpoint that is tiny but whole (`make test-full`: its image takes minutes to build). In place of vLLM a program
serves that starts on nothing but a quantized checkpoint.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from steelyard.api.labels import POOL, SERVICE

from e2e import packages
from e2e.cache import REPOSITORY, cached, content_key
from e2e.cluster.archive import write_archive
from e2e.images import context
from e2e.images.build import BUILDAH, build_archives
from e2e.monitoring.install import replaced
from e2e.platform import CHARTS, SYSTEM_NAMESPACE, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

NAMESPACE, CLAIM, LAYERS = "quantize-job", "weights", 3
GO = "/tmp/go"
REAL = bool(os.environ.get("STEELYARD_REAL_QUANTIZE"))
MAKE_REAL = """
import sys, torch
from pathlib import Path
from safetensors.torch import load_file, save_file
sys.path.insert(0, "/scripts")
import tiny_model
for name in ("tiny", "damaged"):
    tiny_model.write(Path("/weights") / name)
file = sorted(Path("/weights/damaged").glob("*.safetensors"))[-1]
tensors = load_file(file)
next(t for name, t in tensors.items() if name.startswith("model.layers.2."))[0] = float("nan")
save_file(tensors, file)
"""
MAKE_STANDIN = """
from pathlib import Path
for name, content in (("tiny", "1.0"), ("damaged", "nan")):
    folder = Path("/weights") / name
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(content)
"""
QUANTIZE = f"""#!/usr/bin/python3
import json, sys, time
from pathlib import Path
source, target, recipe = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4]
if "--reuse" in sys.argv and target.is_dir():
    sys.exit(print(f"{{target}} is there already"))
for layer in range({LAYERS}):
    print(f"layer {{layer}} of {LAYERS}", file=sys.stderr, flush=True)
    if (source / "model.safetensors").read_text() == "nan":
        sys.exit(f"error: layer {{layer}} has values that are not finite")
    while not Path("{GO}").exists():  # until somebody has seen how far it is
        time.sleep(0.2)
print("layer {LAYERS} of {LAYERS}", file=sys.stderr, flush=True)
work = target.with_name("." + target.name)
work.mkdir()
(work / "config.json").write_text(json.dumps({{"quantization_config": {{"format": "int-quantized"}}}}))
(work / "model.safetensors").write_text("1")
work.rename(target)
print(f"wrote {{target}}")
"""
# Answers as vLLM does to probes, and starts on a quantized checkpoint only.
STANDIN = """#!/usr/bin/python3
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
folder = Path(sys.argv[2])
config = json.loads((folder / "config.json").read_text())
held = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
print(json.dumps({"format": config["quantization_config"]["format"], "bytes": held}), flush=True)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"vllm:num_requests_running 0\\nvllm:num_requests_waiting 0\\n")
    def log_message(self, *_):
        pass
HTTPServer(("", 8000), Handler).serve_forever()
"""


def service(name: str, model: str, image: str) -> dict[str, Any]:
    """A service of that checkpoint on the claim, in 8-bit integers."""
    small = {"requests": {"cpu": "100m", "memory": "300Mi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
    standin = {"name": "standin", "mountPath": "/standin"}
    pod = {
        "volumes": [{"name": "standin", "configMap": {"name": "standin", "defaultMode": 0o555}}],
        "containers": [{"name": "engine", "volumeMounts": [standin]}],
    }
    spec = {
        "model": {"uri": f"pvc://{CLAIM}/{model}", "contextLength": 256},
        "engine": {"name": "vllm", "image": image, "env": [{"name": "PATH", "value": "/standin:/usr/bin:/bin"}]},
        "topology": "Aggregated",
        "quantization": {"weights": "int8", "source": "Job", "job": {"samples": 4, "resources": small}},
        "aggregated": {"template": {"spec": pod}},
        "routing": {"replicas": 1, "requestTimeout": "30s"},
    }
    kind = {"apiVersion": "serving.steelyard.dev/v1alpha1", "kind": "InferenceService"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def prepared(image: str) -> list[dict[str, Any]]:
    """The claim, what fills it, and the stand-in's program."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    tiny = {"tiny_model.py": (REPOSITORY / "kernels" / "tests" / "support" / "tiny_model.py").read_text()}
    container = {
        "name": "make",
        "image": image,
        "command": ["python3", "-c", MAKE_REAL if REAL else MAKE_STANDIN],
        "volumeMounts": [{"name": "weights", "mountPath": "/weights"}, {"name": "scripts", "mountPath": "/scripts"}],
    }
    pod = {
        "containers": [container],
        "volumes": [
            {"name": "weights", "persistentVolumeClaim": {"claimName": CLAIM}},
            {"name": "scripts", "configMap": {"name": "tiny"}},
        ],
        "restartPolicy": "Never",
        "securityContext": {"fsGroup": 65532},
    }
    return [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": claim},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tiny"}, "data": tiny},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "standin"}, "data": {"vllm": STANDIN}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "make"}, "spec": pod},
    ]


def standin() -> tuple[str, Path]:
    """An image with Python and a `steelyard-quantize` that computes nothing: its reference and archive."""
    key = content_key([context.base_key(), QUANTIZE])
    reference = f"steelyard/quantize:standin-{key}"
    config = {"User": "65532:65532", "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"]}

    def write(folder: Path) -> None:
        packages.install(BUILDAH, "Making a base of Debian's packages", print)
        layer = folder / "layer.tar"
        with tarfile.open(layer, "w") as out:
            member = tarfile.TarInfo("usr/local/bin/steelyard-quantize")
            member.size, member.mode = len(QUANTIZE.encode()), 0o755
            out.addfile(member, io.BytesIO(QUANTIZE.encode()))
        write_archive(folder / "image.tar", reference, config, [context.root_file_system(), layer])
        layer.unlink()

    return reference, cached("images", f"quantize-standin-{key}", write) / "image.tar"


@pytest.fixture(scope="module")
def quantizing(platform: Platform) -> Iterator[Platform]:
    """A cluster whose installation can quantize, and a claim with checkpoints."""
    reference, archive = next(iter(build_archives(("quantize",)).items())) if REAL else standin()
    platform.cluster.load([archive])
    tag = reference.rpartition(":")[2]
    wait = ["-n", SYSTEM_NAMESPACE, "--reuse-values", "--wait", "--timeout", "3m"]
    platform.helm(
        "upgrade", "steelyard", str(CHARTS / "steelyard"), *wait, "--set-string", f"images.quantize.tag={tag}"
    )
    platform.wait_for("the operator with the earlier image to be gone", lambda: replaced(platform))
    others = [node for node in platform.cluster.nodes if node != "node1"]
    for node in others:  # a claim of this cluster is a folder of one node
        platform.kubectl("cordon", node)
    try:
        apply(platform, *prepared(reference))
        platform.wait_for("the checkpoints", lambda: phase(platform, "make") == "Succeeded", 300)
        yield platform
    finally:
        platform.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        for node in others:
            platform.kubectl("uncordon", node)


def apply(platform: Platform, *items: dict[str, Any]) -> None:
    platform.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}), NAMESPACE)


def phase(platform: Platform, pod: str) -> str:
    found = platform.get("pod", pod, NAMESPACE).get("status", {}).get("phase", "")
    assert found != "Failed", platform.kubectl("logs", pod, "-n", NAMESPACE)
    return str(found)


def engine_image(platform: Platform) -> str:
    """An image with Python that is on every node."""
    [settings] = platform.items("configmap", SYSTEM_NAMESPACE, "app.kubernetes.io/name=steelyard")
    return str(yaml.safe_load(settings["data"]["operator.yaml"])["images"]["engine"])


def condition(platform: Platform, name: str, kind: str) -> tuple[str, str, str]:
    status = platform.get("inferenceservice", name, NAMESPACE).get("status", {})
    found = [one for one in status.get("conditions", []) if one["type"] == kind]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")


def jobs(platform: Platform, name: str) -> list[dict[str, Any]]:
    return platform.items("job", NAMESPACE, f"{SERVICE}={name}")


def log(platform: Platform, job: str) -> str:
    return platform.kubectl("logs", f"job/{job}", "-n", NAMESPACE)


def test_a_checkpoint_that_cannot_be_used_fails_at_once_with_the_reason_and_starts_nothing(
    quantizing: Platform,
) -> None:
    apply(quantizing, service("unlucky", "damaged", engine_image(quantizing)))
    quantizing.wait_for(
        "the failure", lambda: condition(quantizing, "unlucky", "ModelReady")[1] == "QuantizeFailed", 300
    )
    _, reason, message = condition(quantizing, "unlucky", "Progressing")
    assert reason == "QuantizeFailed"
    assert "has values that are not finite" in message, "the end of the Job's log"
    [job] = jobs(quantizing, "unlucky")
    assert f"delete Job {job['metadata']['name']} to try again" in message
    quantizing.wait_for("the count", lambda: jobs(quantizing, "unlucky")[0]["status"].get("failed"), 60)
    assert jobs(quantizing, "unlucky")[0]["status"]["failed"] == 1, "what no repetition helps is not repeated"
    assert quantizing.items("deployment", NAMESPACE, f"{SERVICE}=unlucky") == []
    [told] = quantizing.get("inferenceservice", "unlucky", NAMESPACE)["status"]["quantization"]
    assert (told["state"], told["recipe"]) == ("Failed", "int8")
    quantizing.kubectl("delete", "inferenceservice", "unlucky", "-n", NAMESPACE)


def test_the_job_comes_first_and_engines_start_on_what_it_made(quantizing: Platform) -> None:
    apply(quantizing, service("chat", "tiny", engine_image(quantizing)))
    quantizing.wait_for("the Job", lambda: jobs(quantizing, "chat"), 120)
    [job] = jobs(quantizing, "chat")

    def progress() -> str:
        status = quantizing.get("inferenceservice", "chat", NAMESPACE).get("status", {})
        return next((str(one.get("progress", "")) for one in status.get("quantization", [])), "")

    if not REAL:  # the real program does not wait to be seen
        quantizing.wait_for("progress", lambda: progress() == f"layer 0 of {LAYERS}", 300)
        quantizing.kubectl("exec", f"job/{job['metadata']['name']}", "-n", NAMESPACE, "--", "touch", GO)

    def done() -> bool:
        there = quantizing.items("deployment", NAMESPACE, f"{SERVICE}=chat")
        ended = bool(jobs(quantizing, "chat")[0].get("status", {}).get("succeeded"))
        assert ended or not there, "nothing starts before the Job is done"
        return ended

    quantizing.wait_for("the Job to be done", done, 300)
    quantizing.wait_available("chat", NAMESPACE)
    said = log(quantizing, job["metadata"]["name"])
    assert f"layer {LAYERS} of {LAYERS}" in said
    assert "wrote /quantized/tiny-int8-" in said
    [engine] = quantizing.items("pod", NAMESPACE, f"{SERVICE}=chat,{POOL}=aggregated")
    started = json.loads(quantizing.kubectl("logs", engine["metadata"]["name"], "-n", NAMESPACE).splitlines()[0])
    assert started["format"] == "int-quantized"
    assert condition(quantizing, "chat", "ModelReady")[0] == "True"
    assert "quantization" not in quantizing.get("inferenceservice", "chat", NAMESPACE)["status"]
    events = quantizing.items("event", NAMESPACE)
    assert "Quantized" in {event["reason"] for event in events if event["involvedObject"]["name"] == "chat"}


def test_another_service_finds_what_was_made(quantizing: Platform) -> None:
    apply(quantizing, service("again", "tiny", engine_image(quantizing)))
    quantizing.wait_available("again", NAMESPACE)
    [first], [second] = jobs(quantizing, "chat"), jobs(quantizing, "again")
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert "is there already" in log(quantizing, second["metadata"]["name"])
    assert "layer" not in log(quantizing, second["metadata"]["name"])
