"""The demo's proof reads the right counters and says what is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import httpx
import pytest

from e2e.cluster.local.cluster import LocalCluster
from e2e.demo import figures, run
from e2e.demo.talk import events
from e2e.platform import Platform

METRICS = """
# TYPE vllm:prompt_tokens_by_source counter
vllm:prompt_tokens_by_source_total{model_name="m",source="local_compute"} 1.0
vllm:prompt_tokens_by_source_total{model_name="m",source="external_kv_transfer"} 51.0
# TYPE steelyard_engine_kv_transfer_bytes counter
steelyard_engine_kv_transfer_bytes_total{direction="in"} 1176396.0
"""
PROVEN = run.Account(8.0, 0.5, 52, 1, 1176396, "text", "text", True)
PREFILL = Counter({
    (figures.PROMPT_TOKENS, "local_compute"): 36,
    (figures.PROMPT_TOKENS, "local_cache_hit"): 16,
    (figures.TRANSFERRED, "out"): 1176396,
})  # fmt: skip


def test_counters_are_summed_by_source_and_direction() -> None:
    counts = figures.parse(METRICS)
    assert counts[figures.PROMPT_TOKENS, "local_compute"] == 1
    assert counts[figures.PROMPT_TOKENS, "external_kv_transfer"] == 51
    assert counts[figures.TRANSFERRED, "in"] == 1176396
    assert counts[figures.TRANSFERRED, "out"] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"decode_recomputed_tokens": 2}, "recomputed 2 of 52"),
        ({"transferred_bytes": 0}, "pulled no KV"),
        ({"texts_equal": False}, "differs"),
        ({"prompt_tokens": 53}, "prefill pods read 52 of 53"),
        ({"transferred_bytes": 7}, "gave 1176396 bytes, the decode pods pulled 7"),
    ],
)
def test_what_is_missing_of_the_proof_is_said(change: dict[str, Any], said: str | None) -> None:
    missing = run.missing(replace(PROVEN, **change), PREFILL)
    assert missing == [] if said is None else said in "; ".join(missing)


@pytest.mark.parametrize("found", [None, "/usr/bin/kubectl"])
def test_a_machine_without_kubectl_is_given_the_clusters_own(
    monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: found)
    cluster = LocalCluster("shown")
    first, *_ = run.how_to_talk(Platform(cluster))
    own = f"export PATH=$PATH:{cluster.kubectl_program.parent}"
    assert first == ("export KUBECONFIG=e2e/out/shown/kubeconfig" if found else own)


def reply(*lines: str) -> httpx.Response:
    return httpx.Response(200, text="\n\n".join(lines))


def test_a_stream_is_read_to_its_end() -> None:
    assert list(events(reply('data: {"a": 1}', ": comment", "data: [DONE]"))) == [{"a": 1}]


@pytest.mark.parametrize(
    "lines", [('data: {"a": 1}',), ('data: {"error": {"message": "engine gone"}}', "data: [DONE]")]
)
def test_a_broken_stream_is_no_answer(lines: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="the stream ended"):
        list(events(reply(*lines)))
