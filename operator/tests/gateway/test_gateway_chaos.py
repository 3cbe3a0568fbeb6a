"""Many clients, engines that misbehave at random, pods that come and go: the books must balance."""

import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from gateway_calls import Connection, completion, raw_request
from gateway_fakes import Behaviour, FakeEngine, Seen, pod
from gateway_process import gateway, wait_until

CLIENTS, REQUESTS = 8, 12


def misbehave(dice: random.Random) -> Behaviour:
    return dice.choice(
        [
            *[Behaviour(tokens=dice.randrange(1, 6), delay=dice.random() / 50, interval=dice.random() / 100)] * 6,
            Behaviour(status=dice.choice([400, 429, 500, 503])),
            Behaviour(die_after=0),
            Behaviour(tokens=6, die_after=dice.randrange(1, 5)),
            Behaviour(kv=None),
            Behaviour(done=False),
            Behaviour(silent=True),
            Behaviour(usage="none"),
            Behaviour(split=dice.randrange(1, 30)),
        ]
    )


def client(port: int, seed: int) -> Counter[str]:
    """Send requests and note how each one looked from here; some are left before their end."""
    dice = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(REQUESTS):
        connection = Connection(port, timeout=30)
        stream = dice.random() < 0.6
        body = completion(f"{seed}-{number} " + "x" * dice.randrange(3000), stream=stream)
        connection.send(raw_request("POST", "/v1/completions", body))
        if dice.random() < 0.15:
            time.sleep(dice.random() / 20)
            connection.close()
            seen["left"] += 1
            continue
        answer = connection.answer()
        assert answer.complete, "every answer is whole HTTP, whatever happened behind it"
        if answer.status != 200:
            assert "message" in answer.json["error"]
            seen["refused" if answer.status in (429, 503) else "error"] += 1
        elif stream:
            last = answer.events[-1]
            assert last == "[DONE]" or "error" in json.loads(last)
            seen["whole" if last == "[DONE]" else "broken"] += 1
        else:
            assert answer.json["choices"]
            seen["whole"] += 1
        connection.close()
    return seen


@pytest.mark.parametrize("topology", ["Disaggregated", "Aggregated"])
def test_every_request_ends_exactly_once(topology: str) -> None:
    dice = random.Random(7)
    engines = [FakeEngine() for _ in range(5)]

    def behave(engine: FakeEngine, seen: Seen) -> Behaviour:
        return misbehave(dice)

    for engine in engines:
        engine.behave = behave

    def listed() -> list[dict[str, Any]]:
        if topology == "Aggregated":
            return [pod(e, "aggregated", f"e{i}", ready=dice.random() < 0.9) for i, e in enumerate(engines)]
        roles = ["prefill", "decode", *(dice.choice(["prefill", "decode"]) for _ in engines[2:])]
        pairs = enumerate(zip(engines, roles, strict=True))
        return [pod(e, role, f"e{i}", ready=dice.random() < 0.95) for i, (e, role) in pairs]

    settings: dict[str, Any] = {
        "topology": topology,
        "stallTimeoutSeconds": 0.4,
        "requestTimeoutSeconds": 5,
        "decodeSlots": 3,
    }
    settings["limits"] = {"concurrent": 7}
    with gateway(listed(), settings) as process, ThreadPoolExecutor(CLIENTS) as pool:
        futures = [pool.submit(client, process.port, seed) for seed in range(CLIENTS)]
        stop = threading.Event()

        def shuffle() -> None:
            while not stop.wait(0.4):
                process.write_pods(listed())

        threading.Thread(target=shuffle, daemon=True).start()
        seen = sum((future.result() for future in futures), Counter[str]())
        stop.set()
        assert sum(seen.values()) == CLIENTS * REQUESTS
        assert seen["whole"] > CLIENTS * REQUESTS / 4

        def settled() -> bool:
            ended = process.metric("steelyard_gateway_requests_total")
            return ended == process.metric("steelyard_gateway_arrived_total") == CLIENTS * REQUESTS

        wait_until(settled)
        for gauge in ("outstanding_tokens", "queued_tokens", "queued_requests", "late_requests"):
            assert process.metric("steelyard_gateway_" + gauge) == 0, gauge
        assert process.metric("steelyard_gateway_requests_total", outcome="completed") >= seen["whole"] - seen["broken"]
        assert "traceback" not in process.log()
