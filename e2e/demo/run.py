"""The demo's steps on an installed platform: one InferenceService, one answer, the proof, and how to go on."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from e2e.cache import REPOSITORY
from e2e.demo import figures
from e2e.demo.talk import Answer, stream_chat
from e2e.platform import EXAMPLES, Platform

NAMESPACE, SERVICE, WHOLE = "demo", "smollm2", "smollm2-whole"
RESULT = REPOSITORY / "e2e" / "out" / "demo.json"
QUESTION = (
    "A steelyard is a balance with arms of unequal length. The load hangs from the short arm, and a single weight slides along "
    "the long arm until the beam is level. In two sentences: why did merchants like it?"
)
MAX_TOKENS = 64

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


def run(platform: Platform, say: Say) -> tuple[Account, list[str]]:
    """Everything from an installed platform to the account and what is missing of its proof; leaves the service running.

    A service that an earlier run left is removed first, so that the figures are those of a new one.
    """
    names = (SERVICE, WHOLE)
    platform.kubectl(
        "delete", "inferenceservice", *names, "-n", NAMESPACE, "--ignore-not-found", "--cascade=foreground"
    )
    say("applying docs/examples/smollm2.yaml")
    started = time.monotonic()
    platform.apply(EXAMPLES / "smollm2.yaml", NAMESPACE)
    platform.wait_available(SERVICE, NAMESPACE)
    ready_seconds = time.monotonic() - started
    say(f"InferenceService {NAMESPACE}/{SERVICE} is Available after {ready_seconds:.0f} s")
    answer, prefill, decode = disaggregated(platform)
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
    return account, missing(account, prefill)


def disaggregated(platform: Platform) -> tuple[Answer, figures.Counts, figures.Counts]:
    """The completion by prefill and decode pods, and what the counters of the prefill and the decode pods gained by it."""
    roles = [figures.ready_pods(platform, SERVICE, role, NAMESPACE) for role in ("prefill", "decode")]
    before = [figures.of_pods(platform, pods, NAMESPACE) for pods in roles]
    with platform.forward(f"svc/{SERVICE}", 8000, NAMESPACE) as base:
        answer = stream_chat(base, SERVICE, QUESTION, MAX_TOKENS)
    prefill, decode = (figures.of_pods(platform, pods, NAMESPACE) for pods in roles)
    prefill.subtract(before[0])
    decode.subtract(before[1])
    return answer, prefill, decode


def whole(platform: Platform) -> Answer:
    """The completion by one pod that does both; its service is deleted afterwards."""
    platform.apply(EXAMPLES / "smollm2-whole.yaml", NAMESPACE)
    platform.wait_available(WHOLE, NAMESPACE)
    with platform.forward(f"svc/{WHOLE}", 8000, NAMESPACE) as base:
        answer = stream_chat(base, SERVICE, QUESTION, MAX_TOKENS)
    platform.kubectl("delete", "inferenceservice", WHOLE, "-n", NAMESPACE)
    return answer


def missing(account: Account, prefill: figures.Counts) -> list[str]:
    """What is missing of the proof, by both pods' own counters; empty when prefill and decode really were apart."""
    found = []
    if (read := figures.prompt_tokens(prefill)) != account.prompt_tokens:
        found.append(f"the prefill pods read {read} of {account.prompt_tokens} prompt tokens")
    if (given := prefill[figures.TRANSFERRED, "out"]) != account.transferred_bytes:
        found.append(f"the prefill pods gave {given} bytes, the decode pods pulled {account.transferred_bytes}")
    if account.transferred_bytes <= 0:
        found.append("the decode pods pulled no KV state")
    if account.decode_recomputed_tokens > 1:
        found.append(f"decode recomputed {account.decode_recomputed_tokens} of {account.prompt_tokens} prompt tokens")
    if not account.texts_equal:
        found.append("the disaggregated text differs from the aggregated one")
    return found


def how_to_talk(platform: Platform) -> list[str]:
    """Commands to go on with, for this cluster; where the machine has no kubectl, the cluster's own is put on PATH."""
    kubeconfig = Path(platform.cluster.kubeconfig)
    shown = kubeconfig.relative_to(REPOSITORY) if kubeconfig.is_relative_to(REPOSITORY) else kubeconfig
    own = [] if shutil.which("kubectl") else [f"export PATH=$PATH:{platform.cluster.kubectl_program.parent}"]
    return [
        *own,
        f"export KUBECONFIG={shown}",
        f"kubectl -n {NAMESPACE} get isv",
        f"kubectl -n {NAMESPACE} port-forward svc/{SERVICE} 8000:8000 &",
        "curl -N http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        f'  -d \'{{"model": "{SERVICE}", "stream": true, "messages": [{{"role": "user", "content": "Why is the sky blue?"}}]}}\'',
    ]
