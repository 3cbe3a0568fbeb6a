"""The demo itself: a completion that was prefilled in one pod and decoded in another, and the same text by one pod."""

from __future__ import annotations

import json

import pytest

from e2e.demo import run as demo
from e2e.platform import Platform

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(900)
def test_the_demo_shows_its_proof(platform: Platform) -> None:
    account = demo.run(platform, print)
    platform.kubectl("delete", "namespace", demo.NAMESPACE, "--wait=false")
    assert demo.proven(account) == []
    assert account.prompt_tokens > 40
    assert len(account.text) > 40
    written = json.loads(demo.RESULT.read_text())
    assert set(written) == {
        "ready_seconds", "first_token_seconds", "prompt_tokens", "decode_recomputed_tokens",
        "transferred_bytes", "text", "aggregated_text", "texts_equal",
    }  # fmt: skip
