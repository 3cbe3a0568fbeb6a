"""Our PromQL evaluated by Prometheus itself, over series that another system's users once reported trouble with.

Each row is one failure case by its id, with the thread where it was told. `promtool` of the version that the cluster's
Prometheus has does the evaluating; no cluster is needed, only the program, which `make test` builds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from steelyard.observe import metrics_engines as engines
from steelyard.observe import metrics_gateway as gateway
from steelyard.observe.attainment import queries
from steelyard.observe.readings import NOW, over

from e2e.cluster import build
from e2e.cluster.programs import PROMTOOL

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]  # the first time the program is built

Series = dict[str, str]
Rows = dict[str, float]


@pytest.fixture(scope="session")
def promtool() -> Path:
    return build.ensure(Console(file=sys.__stderr__), [PROMTOOL])[PROMTOOL.name]


def of(metric: str, pod: str = "d-0", service: str = "chat", **more: str) -> str:
    labels = {"namespace": "a", "service": service, "pod": pod, "job": "steelyard", **more}
    return metric + "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def row(pod: str | None = "d-0", service: str = "chat", **more: str) -> str:
    labels = {"namespace": "a", "service": service, **({"pod": pod} if pod else {}), **more}
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


GENERATED, GAP = over(20)["generated"].text, over(20)["step_seconds"].text
TOKENS = "vllm:generation_tokens_total"
CASES: tuple[tuple[str, str, str, Series, Rows], ...] = (
    (
        "A07",
        "prometheus/prometheus#13221: the first observation of a new series has no rate",
        GENERATED,
        {of(TOKENS): "0+50x12", of(TOKENS, "d-new"): "_x12 700"},
        {row(): 10},
    ),
    (
        "A31",
        "kubernetes-sigs/gateway-api-inference-extension#1905: a renamed gauge; pods of both versions in a roll-out",
        over(20)["kv_use"].text,
        {of("vllm:kv_cache_usage_perc"): "0.5x12", of("vllm:gpu_cache_usage_perc", "d-old"): "0.7x12"},
        {row(): 0.5, row("d-old"): 0.7},
    ),
    (
        "A32",
        "gpustack/gpustack#2985: a version that exports the old and the new histogram is counted once",
        engines.rate(engines.GAP, 20, "_count"),
        {
            of("vllm:time_per_output_token_seconds_count"): "0+5000x12",
            of("vllm:inter_token_latency_seconds_count"): "0+5000x12",
        },
        {row(): 1000},
    ),
    (
        "A39",
        "prometheus/docs#92: rate first, then sum; a restart of one pod is neither a spike nor negative",
        engines.rate(engines.GENERATED, 60),
        {of(TOKENS): "1000+5x12", of(TOKENS, "d-1"): "5000+5x6 5+5x5"},
        {row(): 1, row("d-1"): 1},
    ),
    (
        "A50",
        "vllm-project/production-stack keda-scaled-object.yaml: one element for each service, never another's",
        over(20)["running"].text,
        {of("vllm:num_requests_running", model_name="m1"): "0x12",
         of("vllm:num_requests_running", "b-0", "mail", model_name="m2"): "40x12",
         'vllm:num_requests_running{namespace="a", pod="stranger"}': "9x12"},
        {row(): 0, row("b-0", "mail"): 40},
    ),
    (
        "A18",
        "llm-d/llm-d#2310: the model's name in the engine's own label matters to no query",
        over(20)["running"].text,
        {of("vllm:num_requests_running", model_name="Qwen/Qwen3-32B"): "7x12"},
        {row(): 7},
    ),
    (
        "duplicated series",
        "two scrape jobs of one pod are one pod",
        over(20)["running"].text,
        {of("vllm:num_requests_running"): "7x12", of("vllm:num_requests_running", job="other"): "7x12"},
        {row(): 7},
    ),
    (
        "ranks",
        "data-parallel ranks of one pod add up, and the fullest one tells its KV use",
        over(20)["running"].text,
        {of("vllm:num_requests_running", engine="0"): "7x12", of("vllm:num_requests_running", engine="1"): "5x12"},
        {row(): 12},
    ),
    (
        "SGLang",
        "its names mean the same things",
        over(20)["computed"].text,
        {of("sglang:prompt_tokens_total"): "0+500x12", of("sglang:cached_tokens_total"): "0+100x12"},
        {row(): 80},
    ),
    *(
        (
            f"TensorRT-LLM {thing}",
            "its names mean the same things (NVIDIA/TensorRT-LLM, tensorrt_llm/metrics/collector.py)",
            over(20)[thing].text,
            {of(f"trtllm_{name}", model_name="m", engine_type="trtllm"): values for name, values in series.items()},
            {row(): expected},
        )
        for thing, series, expected in (
            ("running", {"num_requests_running": "7x12"}, 7),
            ("waiting", {"num_requests_waiting": "2x12"}, 2),
            ("kv_use", {"kv_cache_utilization": "0.6x12"}, 0.6),
            ("generated", {"generation_tokens_total": "0+500x12"}, 100),
            ("computed", {"prompt_tokens_total": "0+500x12", "prompt_cached_tokens_total": "0+100x12"}, 80),
            ("step_seconds", {
                "time_per_output_token_seconds_sum": "0+2x12", "time_per_output_token_seconds_count": "0+100x12",
            }, 0.02),
            ("prefills", {"request_prefill_time_seconds_count": "0+10x12"}, 2),
            ("prefill_seconds", {
                "request_prefill_time_seconds_sum": "0+3x12", "request_prefill_time_seconds_count": "0+10x12",
            }, 0.3),
        )
    ),
    (
        "TensorRT-LLM that counts no cached tokens",
        "an earlier version: how many are new is not known, and nothing is made up",
        over(20)["computed"].text,
        {of("trtllm_prompt_tokens_total"): "0+500x12"},
        {},
    ),
    (
        "vLLM without sources",
        "older versions: prompt tokens less hits of the prefix cache",
        over(20)["computed"].text,
        {of("vllm:prompt_tokens_total"): "0+500x12", of("vllm:prefix_cache_hits_total"): "0+250x12"},
        {row(): 50},
    ),
    (
        "an idle engine",
        "0/0 is no step time (NaN is dropped when the answer is read, and kept from comparison here by `>= 0`)",
        f"({GAP}) >= 0",
        {of("vllm:inter_token_latency_seconds_sum"): "9x12", of("vllm:inter_token_latency_seconds_count"): "90x12"},
        {},
    ),
    (
        "a failed scrape",
        "the newest value of the last 15 s counts although the last scrape failed; an older one does not",
        over(20)["running"].text,
        {of("vllm:num_requests_running"): "7x10 stale stale", of("vllm:num_requests_running", "d-1"): "7x7 stale _x4"},
        {row(): 7},
    ),
    (
        "age",
        "of the newest sample that succeeded: a target that is down has none",
        NOW["age"].text,
        {of("up"): "1x12", of("up", "d-1"): "1x8 0x4"},
        {row(): 0},
    ),
    (
        "judged",
        "cancelled and invalid requests do not count; lengths and gateways add up",
        gateway.judged(60, "ttft_met"),
        {
            of("steelyard_gateway_requests_total", "g-0", outcome="completed", ttft_met="true", length_class="0-255"): "0+5x12",
            of("steelyard_gateway_requests_total", "g-1", outcome="completed", ttft_met="true", length_class="0-255"): "0+5x12",
            of("steelyard_gateway_requests_total", "g-0", outcome="failed", ttft_met="false", length_class="0-255"): "0+1x12",
            of("steelyard_gateway_requests_total", "g-0", outcome="cancelled", ttft_met="none", length_class="0-255"): "0+9x12",
        },
        {row(None, ttft_met="true"): 120, row(None, ttft_met="false"): 12},
    ),
    (
        "outstanding",
        "prompt tokens that the gateways have sent to an engine, by the engine's name: the gateway's own pod does not matter",
        over(20)["outstanding"].text,
        {
            of("steelyard_gateway_engine_outstanding_tokens", "g-0", engine="p-0"): "500x12",
            of("steelyard_gateway_engine_outstanding_tokens", "g-1", engine="p-0"): "300x12",
            of("steelyard_gateway_engine_outstanding_tokens", "g-1", engine="p-1"): "0x12",
        },
        {row(None, engine="p-0"): 800, row(None, engine="p-1"): 0},
    ),
    (
        "no gateway of ours",
        "engines' histograms are asked for only where nothing better is there",
        queries(60)["first"].text,
        {
            of("vllm:time_to_first_token_seconds_bucket", le="0.5"): "0+5x12",
            of("vllm:time_to_first_token_seconds_bucket", "m-0", "mail", le="0.5"): "0+5x12",
            of("steelyard_gateway_arrived_total", "g-0"): "0+5x12",
        },
        {row("m-0", "mail", le="0.5"): 1},
    ),
)  # fmt: skip


@pytest.mark.parametrize(("case", "source", "query", "series", "expected"), CASES, ids=[case[0] for case in CASES])
def test_what_prometheus_makes_of_our_queries(
    case: str, source: str, query: str, series: Series, expected: Rows, promtool: Path, tmp_path: Path
) -> None:
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    test = {
        "interval": "5s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "60s", "exp_samples": samples}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "5s", "fuzzy_compare": True, "tests": [test]}))
    done = subprocess.run([str(promtool), "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{source}\n{done.stdout}{done.stderr}"


def test_every_query_is_promql(promtool: Path, tmp_path: Path) -> None:
    """Parsed by Prometheus, as rules: those of a tick, and those of the figures."""
    every = {**NOW, **over(20), **{f"figures_{name}": query for name, query in queries(300).items()}}
    rules = [{"record": f"steelyard:{name}", "expr": query.text} for name, query in every.items()]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run([str(promtool), "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
