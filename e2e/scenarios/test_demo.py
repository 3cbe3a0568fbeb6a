"""The demo itself: a completion that was prefilled in one pod and decoded in another, and the same text by one pod."""

from __future__ import annotations

import json
import subprocess

import pytest

from e2e.cache import REPOSITORY
from e2e.demo import run as demo
from e2e.platform import CHARTS, Platform

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(900)
def test_the_demo_shows_its_proof(platform: Platform) -> None:
    account, missing = demo.run(platform, print)
    *commands, _, _ = demo.how_to_talk(platform)  # without port-forward and curl, whose port may be taken here
    shown = subprocess.run(
        ["bash", "-ec", "\n".join(commands)], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    platform.kubectl("delete", "namespace", demo.NAMESPACE, "--wait=false")
    assert missing == []
    assert demo.SERVICE in shown.stdout
    assert account.prompt_tokens > 40
    assert len(account.text) > 40
    written = json.loads(demo.RESULT.read_text())
    assert set(written) == {
        "ready_seconds", "first_token_seconds", "prompt_tokens", "decode_recomputed_tokens",
        "transferred_bytes", "text", "aggregated_text", "texts_equal",
    }  # fmt: skip


@pytest.mark.timeout(300)
def test_the_demo_chart_serves_and_leaves_nothing(platform: Platform, namespace: str) -> None:
    platform.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    platform.helm("install", "tryout", str(CHARTS / "steelyard-demo"), "-n", namespace)
    platform.wait_available(demo.SERVICE, namespace)
    platform.helm("uninstall", "tryout", "-n", namespace)
    platform.wait_for("the service's pods to go", lambda: not platform.items("pod", namespace), 180)
