"""From 16 bits to 8 and to an answer: the operator's Job quantizes SmolLM2 by our own program, and real vLLM serves what it wrote.

The pair's roles are fixed, so that its engines are told that one gives KV and the other takes it, and what is lost is an error.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from steelyard.api.labels import DECODE, PREFILL, SERVICE

from e2e.images.build import build_archives
from e2e.monitoring.install import replaced
from e2e.platform import CHARTS, SYSTEM_NAMESPACE, Platform
from e2e.vllm import models
from e2e.vllm.lost import without_its_prefill
from e2e.vllm.serving import COMPUTED, FETCHED, MADE, Service, service, serving

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(5400)]

PROMPT = (
    "Once upon a time in a small village by the sea there lived an old fisherman who told the children stories, and"
)
LOST = "The clockmaker had promised the mayor that the tower's bells would ring at noon, but when the hour came"
JOB = {
    "claim": MADE,
    "samples": 4,
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}},
}


@pytest.fixture(scope="module")
def image(platform: Platform) -> Iterator[str]:
    """vLLM's image, on every node; meanwhile the operator is told where the quantizer's is."""
    archives = build_archives(["vllm", "quantize"])
    platform.cluster.load(list(archives.values()))
    vllm, quantize = archives
    quantizes_by(platform, quantize.rpartition(":")[2])
    yield vllm
    quantizes_by(platform, "")


def quantizes_by(platform: Platform, tag: str) -> None:
    """Tell the operator the tag of the quantizer's image; without one it is the chart's."""
    wait = ["-n", SYSTEM_NAMESPACE, "--reuse-values", "--wait", "--timeout", "3m"]
    platform.helm(
        "upgrade", "steelyard", str(CHARTS / "steelyard"), *wait, "--set-string", f"images.quantize.tag={tag}"
    )
    platform.wait_for("the operator with the earlier image to be gone", lambda: replaced(platform))


@pytest.fixture(scope="module")
def pair(platform: Platform, image: str) -> Iterator[Service]:
    """Prefill and decode on what the Job wrote."""
    wanted = service(
        "eight",
        image,
        "Disaggregated",
        transfer={"connector": "nixl", "onFailure": "fail"},
        quantization={"weights": "int8", "source": "Job", "job": JOB},
        autoscaling={"roleChange": "Never"},
    )
    del wanted["spec"]["model"]["adapters"]
    with serving(platform, "vllm-eight-bits", str(models.folder(print)), [wanted]) as (found,):
        yield found


def test_vllm_serves_what_the_job_wrote(pair: Service) -> None:
    [job] = pair.platform.items("job", pair.namespace, f"{SERVICE}={pair.name}")
    said = pair.platform.kubectl("logs", f"job/{job['metadata']['name']}", "-n", pair.namespace)
    assert f"wrote /quantized/{models.PLAIN}-int8-" in said
    for pool, part in ((PREFILL, "kv_producer"), (DECODE, "kv_consumer")):
        started = pair.log(pool)
        assert f"/{models.PLAIN}-int8-" in started
        assert "quantization=compressed-tensors" in started
        assert f"kv_role='{part}'" in started
        assert "kv_role='kv_both'" not in started
    before = pair.prompt_tokens(DECODE)
    text = pair.text(PROMPT)
    assert len(text.split()) > 5
    after = pair.prompt_tokens(DECODE)
    assert after[COMPUTED] == before[COMPUTED]
    assert after[FETCHED] > before[FETCHED]


def test_lost_state_is_an_error_where_that_is_asked_for(pair: Service) -> None:
    pair.text(PROMPT)
    before = pair.prompt_tokens(DECODE)
    reply = without_its_prefill(pair, LOST)
    assert reply.status_code == 500, reply.text
    assert pair.prompt_tokens(DECODE)[COMPUTED] == before[COMPUTED]
