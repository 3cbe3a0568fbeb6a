"""Services of real vLLM on a cluster of the local machine, for scenarios: manifests, pods, and what pods say of themselves."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from steelyard.api.labels import DECODE, ENGINE_PORT, GATEWAY_PORT, POOL, PREFILL, SERVICE

from e2e.cluster.local.cluster import LocalCluster
from e2e.platform import Platform
from e2e.vllm import models

NAME = "smollm2"  # what clients call the model
ADAPTED = "drawn"  # and the model with the adapter
CLAIM, MADE = "models", "quantized"  # what is there, and what a Job writes
TOKENS = 24
START_SECONDS = 2700  # engines that start at once on two busy cores, or a Job and engines
SOURCES = "vllm:prompt_tokens_by_source_total"
COMPUTED, CACHED, FETCHED = "local_compute", "local_cache_hit", "external_kv_transfer"


@dataclass(frozen=True)
class Service:
    """A service that is up, by the address of its gateway."""

    platform: Platform
    namespace: str
    name: str
    url: str

    def pod(self, pool: str) -> dict[str, Any]:
        """The pool's only pod that is not leaving."""
        found = self.platform.items("pod", self.namespace, f"{SERVICE}={self.name},{POOL}={pool}")
        [pod] = [one for one in found if "deletionTimestamp" not in one["metadata"]]
        return pod

    def pod_name(self, pool: str) -> str:
        """Its name."""
        return str(self.pod(pool)["metadata"]["name"])

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """The answer of the gateway to greedy sampling."""
        return httpx.post(f"{self.url}/v1/{path}", json={"model": NAME, "temperature": 0, **body}, timeout=900)

    def ask(self, prompt: str, model: str = NAME) -> httpx.Response:
        """Complete a prompt greedily."""
        return self.post("completions", {"model": model, "prompt": prompt, "max_tokens": TOKENS})

    def text(self, prompt: str, model: str = NAME) -> str:
        """The same, which must be answered by that model."""
        reply = self.ask(prompt, model)
        assert reply.status_code == 200, reply.text
        assert reply.json()["model"] == model
        return str(reply.json()["choices"][0]["text"])

    def prompt_tokens(self, pool: str) -> dict[str, float]:
        """Where the pool's pod has had the tokens of its prompts from, so far."""
        return self.samples(pool, SOURCES, "source")

    def samples(self, pool: str, name: str, label: str) -> dict[str, float]:
        """A metric of the pool's pod, by one of its labels."""
        with self.platform.forward(f"pod/{self.pod_name(pool)}", ENGINE_PORT, self.namespace) as url:
            page = httpx.get(f"{url}/metrics", timeout=120).text
        found = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        return {sample.labels[label]: sample.value for sample in found if sample.name == name}

    def python(self, pod: str, script: str, *arguments: str) -> str:
        """Run a script in a pod; raises ClusterError where it fails."""
        return self.platform.kubectl("exec", "-n", self.namespace, pod, "--", "python3", "-c", script, *arguments)

    def log(self, pool: str) -> str:
        """What the pool's engine has printed."""
        return self.platform.kubectl("logs", self.pod_name(pool), "-n", self.namespace)


def claims(namespace: str, folder: str) -> list[dict[str, Any]]:
    """The folder of models as a claim, which a local cluster's nodes see among the local machine's files, and an empty claim."""
    shared = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    whole = {**shared, "capacity": {"storage": "2Gi"}, "hostPath": {"path": folder, "type": "Directory"}}
    found = {**shared, "volumeName": namespace, "resources": {"requests": {"storage": "2Gi"}}}
    empty = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": namespace},
            "spec": {**whole, "claimRef": {"namespace": namespace, "name": CLAIM}},
        },
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": found},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": MADE}, "spec": empty},
    ]


def service(name: str, image: str, topology: str, **more: Any) -> dict[str, Any]:
    """An InferenceService of one small engine a role; `more` are further fields of its spec."""
    role = {
        "replicas": {"min": 1, "max": 1},
        "resources": {"requests": {"cpu": "100m", "memory": "1500Mi"}, "limits": {"memory": "4Gi"}},
    }
    roles = (PREFILL, DECODE) if topology == "Disaggregated" else ("aggregated",)
    spec = {
        "model": {
            "uri": f"pvc://{CLAIM}/{models.PLAIN}",
            "servedName": NAME,
            "contextLength": 1024,
            "adapters": [{"name": ADAPTED, "uri": f"pvc://{CLAIM}/{models.ADAPTER}", "rank": 8}],
        },
        # vLLM's variable for the cache's size counts in gigabytes.
        "engine": {"name": "vllm", "version": "0.32.0", "image": image, "args": ["--kv-cache-memory-bytes=134217728"]},
        "accelerator": "cpu",
        "topology": topology,
        "batching": {"maxSequences": 4, "maxBatchTokens": 1024},
        "routing": {"replicas": 1, "requestTimeout": "15m"},
        **dict.fromkeys(roles, role),
        **more,
    }
    kind = {"apiVersion": "serving.steelyard.dev/v1alpha1", "kind": "InferenceService"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def _say(text: str) -> None:
    print(f"[vllm] {text}", file=sys.__stderr__, flush=True)


@contextmanager
def serving(platform: Platform, namespace: str, folder: str, services: list[dict[str, Any]]) -> Iterator[list[Service]]:
    """Services in a namespace that admits restricted pods alone, once all of them answer.

    Its name begins with `namespace`; the rest is new each time, since what an earlier run left takes a while to go.
    """
    if not isinstance(platform.cluster, LocalCluster):
        pytest.skip(
            "END-TO-END SKIPPED: the models are a folder of the local machine, which only a local cluster's nodes see"
        )
    namespace = f"{namespace}-{secrets.token_hex(3)}"
    platform.make_namespace(namespace)
    platform.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    items = [*claims(namespace, folder), *services]
    platform.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), namespace)
    names = [one["metadata"]["name"] for one in services]
    began = time.monotonic()
    try:
        for name in names:
            _say(f"{namespace}: waiting for {name}, some minutes")
            platform.wait_available(name, namespace, START_SECONDS)
            _say(f"{namespace}: {name} answers after {time.monotonic() - began:.0f} s")
        with ExitStack() as forwards:
            urls = [forwards.enter_context(platform.forward(f"svc/{one}", GATEWAY_PORT, namespace)) for one in names]
            yield [Service(platform, namespace, name, url) for name, url in zip(names, urls, strict=True)]
    finally:
        platform.kubectl("delete", "inferenceservices", "--all", "-n", namespace, "--wait=false")
        # They would drain for minutes, and hold the memory that the next ones need.
        platform.kubectl("delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0")
        platform.kubectl("delete", "namespace", namespace, "--wait=false")
        platform.kubectl("delete", "persistentvolume", namespace, "--wait=false")
