"""The demo's steps on an installed platform: one InferenceService, one completion, the proof, and how to go on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from e2e.cache import REPOSITORY
from e2e.demo import figures
from e2e.demo.talk import Answer, stream_completion
from e2e.platform import EXAMPLES, Platform

NAMESPACE, SERVICE, WHOLE = "demo", "smollm2", "smollm2-whole"
RESULT = REPOSITORY / "e2e" / "out" / "demo.json"
PROMPT = (
    "A steelyard is a balance with arms of unequal length. The load hangs from the short arm, and a single weight slides along "
    "the long arm until the beam is level. Merchants have used it for two thousand years because one weight is enough to"
)
MAX_TOKENS = 48

Say = Callable[[str], None]


@dataclass(frozen=True)
class Account:
    """What the demo showed; `e2e/out/demo.json` holds these keys."""

    ready_seconds: float  # from `kubectl apply` to the condition Available
    first_token_seconds: float  # as the client saw it, port-forward included
    prompt_tokens: int
    decode_recomputed_tokens: int  # of the prompt, by the decode pods
    transferred_bytes: int  # KV state that the decode pods pulled
    text: str
    aggregated_text: str
    texts_equal: bool


def run(platform: Platform, say: Say) -> Account:
    """Everything from an installed platform to the account; the service is left running."""
    say("applying docs/examples/smollm2.yaml")
    started = time.monotonic()
    platform.apply(EXAMPLES / "smollm2.yaml", NAMESPACE)
    platform.wait_available(SERVICE, NAMESPACE)
    ready_seconds = time.monotonic() - started
    say(f"InferenceService {NAMESPACE}/{SERVICE} is Available after {ready_seconds:.0f} s")
    answer, decode = disaggregated(platform)
    say("the same prompt on an Aggregated service, to compare")
    aggregated = whole(platform)
    account = Account(
        ready_seconds=round(ready_seconds, 2),
        first_token_seconds=round(answer.first_token_seconds, 3),
        prompt_tokens=answer.prompt_tokens,
        decode_recomputed_tokens=decode[figures.PROMPT_TOKENS, "local_compute"],
        transferred_bytes=decode[figures.TRANSFERRED, "in"],
        text=answer.text,
        aggregated_text=aggregated.text,
        texts_equal=answer.text == aggregated.text,
    )
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(asdict(account), indent=2) + "\n")
    return account


def disaggregated(platform: Platform) -> tuple[Answer, figures.Counts]:
    """The completion by prefill and decode pods, and what the decode pods' counters gained by it."""
    pods = figures.ready_pods(platform, SERVICE, "decode", NAMESPACE)
    before = figures.of_pods(platform, pods, NAMESPACE)
    with platform.forward(f"svc/{SERVICE}", 8000, NAMESPACE) as base:
        answer = stream_completion(base, SERVICE, PROMPT, MAX_TOKENS)
    after = figures.of_pods(platform, pods, NAMESPACE)
    after.subtract(before)
    return answer, after


def whole(platform: Platform) -> Answer:
    """The completion by one pod that does both; its service is deleted afterwards."""
    platform.apply(EXAMPLES / "smollm2-whole.yaml", NAMESPACE)
    platform.wait_available(WHOLE, NAMESPACE)
    with platform.forward(f"svc/{WHOLE}", 8000, NAMESPACE) as base:
        answer = stream_completion(base, SERVICE, PROMPT, MAX_TOKENS)
    platform.kubectl("delete", "inferenceservice", WHOLE, "-n", NAMESPACE)
    return answer


def proven(account: Account) -> list[str]:
    """What is missing of the proof; empty when prefill and decode really were apart and the text is the same."""
    missing = []
    if account.transferred_bytes <= 0:
        missing.append("the decode pods pulled no KV state")
    if account.decode_recomputed_tokens > 1:
        missing.append(f"decode recomputed {account.decode_recomputed_tokens} of {account.prompt_tokens} prompt tokens")
    if not account.texts_equal:
        missing.append("the disaggregated text differs from the aggregated one")
    return missing


def how_to_talk(platform: Platform) -> list[str]:
    """Commands to go on with, for this cluster."""
    kubeconfig = Path(platform.cluster.kubeconfig)
    shown = kubeconfig.relative_to(REPOSITORY) if kubeconfig.is_relative_to(REPOSITORY) else kubeconfig
    return [
        f"export KUBECONFIG={shown}",
        f"kubectl -n {NAMESPACE} get isv",
        f"kubectl -n {NAMESPACE} port-forward svc/{SERVICE} 8000:8000 &",
        "curl -N http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        f'  -d \'{{"model": "{SERVICE}", "stream": true, "messages": [{{"role": "user", "content": "Why is the sky blue?"}}]}}\'',
    ]
