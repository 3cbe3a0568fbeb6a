"""Requests that no context could hold, many at once: each is refused, and together they take little more memory than one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from conftest import TLS, Running, Start

AT_ONCE = 8
LONG = (
    b'{"prompt":[' + b",".join([b"1"] * 2_000_000) + b"]}"
)  # near the limit of a body; its tokens take twenty times as much


def most_memory(engine: Running) -> int:
    """The most bytes that an engine's process ever had in memory."""
    lines = Path(f"/proc/{engine.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def test_many_at_once_take_the_memory_of_one(start_simulated: Start) -> None:
    engine = start_simulated()

    def refused(_: int) -> str:
        reply = httpx.post(f"{engine.url}/v1/completions", content=LONG, timeout=110, verify=TLS)
        return f"{reply.status_code} {reply.json()['error']['code']}"

    base = most_memory(engine)
    assert refused(0) == "400 context_length_exceeded"
    one = most_memory(engine) - base
    assert one > 4 * len(LONG), "else there is nothing to bound"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        served = pool.submit(engine.complete, "small", max_tokens=3)
        assert set(pool.map(refused, range(AT_ONCE))) == {"400 context_length_exceeded"}
        assert served.result()["usage"]["completion_tokens"] == 3
    assert most_memory(engine) - base < 2 * one + 2 * AT_ONCE * len(LONG)
