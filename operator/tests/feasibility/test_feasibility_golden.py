"""Golden cases of feasibility: public failure reports, and our own for every rule. The table is `feasibility_cases.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from steelyard.api.accelerator import Accelerator
from steelyard.api.service import InferenceService
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.decide.feasibility.findings import Finding
from steelyard.decide.feasibility.service import judged

CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("feasibility_cases.yaml").read_text())


def hardware(name: str, **spec: Any) -> Accelerator:
    rates = {"memoryBandwidth": 1e12, "peak": {"bf16": 1e14}}
    return Accelerator.read(
        {"metadata": {"name": name}, "spec": {"vendor": "nvidia", "resource": "nvidia.com/gpu", **rates, **spec}}
    )


KNOWN = {
    **ACCELERATORS,
    "rtx3090": hardware("rtx3090", memory="24Gi", computeCapability="8.6"),
    "h100-mig": hardware(
        "h100-mig", memory="20Gi", computeCapability="9.0", perNode=7, resource="nvidia.com/mig-1g.20gb"
    ),
    "single": hardware("single", memory="80Gi", computeCapability="9.0", perNode=1),
    "mine": hardware("mine", memory="80Gi", perNode=8),
}


def service(given: dict[str, Any]) -> InferenceService:
    spec = {"model": {"uri": "hf://Qwen/Qwen3-8B"}, "engine": {"name": "vllm"}, "accelerator": "h200", **given}
    if spec["model"].get("adapters") == "ADAPTERS":
        many = [{"name": f"a{i}", "uri": f"hf://org/a{i}", "rank": 256} for i in range(32)]
        spec["model"] = {**spec["model"], "adapters": many}
    return InferenceService.read({"metadata": {"name": "chat", "namespace": "team-a"}, "spec": spec})


def matches(finding: Finding, wanted: str) -> bool:
    head, *words = (part.strip() for part in wanted.split("|"))
    reason, _, field = head.partition(" ")
    told = str(finding)
    return finding.reason == reason and (not field or finding.field == field) and all(word in told for word in words)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    found = judged(service(case["given"]), KNOWN)
    for kind, findings in (("refused", found.refused), ("warned", found.warned)):
        if kind not in case:
            continue
        wanted = case[kind]
        told = "\n".join(map(str, findings)) or "nothing"
        assert len(findings) == len(wanted), f"{kind}: {told}"
        for line in wanted:
            assert any(matches(finding, line) for finding in findings), f"{line!r} is not among the {kind}: {told}"
    for word in case.get("words_not", ()):
        assert word not in "".join(map(str, found.findings))


def test_the_table_is_large_enough() -> None:
    assert sum("source" in case for case in CASES) >= 20
    assert sum("source" not in case for case in CASES) >= 40
    assert all(case["because"] for case in CASES)
