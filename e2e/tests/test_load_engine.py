"""Real processes: the load generator's own, the simulated engine, and the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from e2e.load import (
    Arrival,
    Bounds,
    Endpoint,
    Kind,
    LoadError,
    Objectives,
    Outcome,
    Spec,
    Target,
    run_load,
    start_load,
    summarise,
)
from e2e.load.cli import app

PROFILE = {
    "startupSeconds": 0.0,
    "kvTokens": 65536,
    "prefill": {"a": 0.002, "b": 1e-5, "c": 0.0},
    "decode": {"g0": 0.002, "g1": 0.0, "g2": 0.0, "g3": 0.0},
    "transferBytesPerSecond": 1e9,
    "bytesPerToken": 1024,
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a simulated engine that serves `sim`."""
    folder = tmp_path_factory.mktemp("engine")
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    port = free_port()
    command = [str(Path(sys.executable).parent / "steelyard-engine"), "--backend", "simulated", "--served-name", "sim"]
    command += ["--profile", str(folder / "profile.json"), "--port", str(port), "--kv-port", str(free_port())]
    command += ["--context-length", "4096", "--advertise-host", "127.0.0.1"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            end = time.monotonic() + 60
            while not healthy(url):
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < end, "the engine did not become healthy"
                time.sleep(0.05)
            yield url
        finally:
            process.kill()


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("processes", [1, 2])
def test_an_engine_answers_every_request(engine: str, endpoint: Endpoint, processes: int) -> None:
    schedule = tuple(Arrival(0.02 * number, 20 + 7 * number, 2 + number) for number in range(15))
    spec = Spec(Target(engine, "sim", endpoint), schedule, objectives=Objectives(60, 60), processes=processes)
    result = run_load(spec)
    assert not result.broken, result.explain()
    assert [one.outcome for one in result.records] == [Outcome.COMPLETED] * len(schedule)
    assert [one.tokens for one in result.records] == [one.output_tokens for one in schedule]
    assert [one.events for one in result.records] == [one.output_tokens for one in schedule]
    if endpoint is Endpoint.COMPLETIONS:  # a chat's template adds tokens of its own
        assert [one.prompt_tokens_read for one in result.records] == [one.prompt_tokens for one in schedule]
    for one in result.records:
        assert one.ttft is not None
        assert one.ttft_from_sent is not None
        assert one.seconds is not None
        assert 0 < one.ttft_from_sent <= one.ttft <= one.seconds
        assert one.tpot is not None
        assert 0 <= one.tpot <= (one.longest_gap or 0) + 1e-9, (
            "a mean is no more than the longest; two may be read at once"
        )
    summary = summarise(result)
    assert summary.attainment.both == 1.0
    assert summary.duplicated == summary.hung == 0
    assert len(result.healths) == processes


def test_equal_answers_are_known_without_keeping_them(engine: str) -> None:
    schedule = (Arrival(0, 40, 9), Arrival(0.05, 41, 9))
    first, again = (run_load(Spec(Target(engine, "sim"), schedule, seed=3)).records for _ in range(2))
    other = run_load(Spec(Target(engine, "sim"), schedule, seed=4)).records
    digests = [[one.digest for one in records] for records in (first, again, other)]
    assert all(digests[0])
    assert digests[0] == digests[1] != digests[2]


def test_what_the_engine_refuses_is_refused(engine: str) -> None:
    result = run_load(Spec(Target(engine, "sim"), (Arrival(0, 5000, 10), Arrival(0, 10, 3))))
    assert [(one.outcome, one.kind) for one in result.records] == [
        (Outcome.REFUSED, "status_400"),
        (Outcome.COMPLETED, None),
    ]
    assert "4096" in (result.records[0].detail or ""), "the server's own words are kept"
    assert "request 0" in result.explain()


def test_a_run_goes_on_while_the_test_does_other_things_and_can_be_stopped(engine: str) -> None:
    schedule = tuple(Arrival(0.02 * number, 10, 3) for number in range(5000))
    with start_load(Spec(Target(engine, "sim"), schedule)) as run:
        end = time.monotonic() + 30
        while run.progress().outcomes[Outcome.COMPLETED] < 5 and time.monotonic() < end:
            time.sleep(0.05)
        run.mark("half-way")
        run.stop()
        result = run.result(seconds=30)
    assert len(result.records) == 5000
    sent = [one for one in result.records if one.sent is not None]
    assert 5 <= len(sent) < 5000
    assert {one.outcome for one in sent} == {Outcome.COMPLETED}, "what was under way could end"
    assert result.count(Outcome.CANCELLED, Kind.UNSENT) == 5000 - len(sent)
    assert not result.broken
    assert [mark.text for mark in result.marks] == ["half-way"]
    assert result.marks[0].at > 0


def test_the_client_can_be_launched_elsewhere(engine: str, tmp_path: Path) -> None:
    def launch(command: Sequence[str]) -> list[str]:
        return ["sh", "-c", 'echo "$1" > "$0"; exec "$@"', str(tmp_path / "launched"), *command]

    result = run_load(Spec(Target(engine, "sim"), (Arrival(0, 10, 3),)), launch)
    assert (tmp_path / "launched").read_text().strip() == sys.executable
    assert not result.broken, result.explain()


def test_leaving_the_block_ends_the_processes(engine: str) -> None:
    with start_load(Spec(Target(engine, "sim"), (Arrival(3600, 10, 3),))) as run:
        assert not run.done()
    assert run.done()
    assert run.result().count(Outcome.CANCELLED) == 1


def test_a_client_process_that_dies_is_an_error_not_a_result(engine: str) -> None:
    with start_load(Spec(Target(engine, "sim"), (Arrival(3600, 10, 3),))) as run:
        (pid,) = children()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(LoadError, match="status -9"):
            run.result(seconds=30)


def children() -> list[int]:
    """The load generator's processes that this one has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_text()
        except OSError:
            continue
        if parent == os.getpid() and "e2e.load.worker" in command:
            found.append(int(stat.parent.name))
    return found


def test_a_host_that_nobody_knows() -> None:
    with pytest.raises(LoadError, match=r"nowhere\.invalid"):
        run_load(Spec(Target("http://nowhere.invalid:1", "m"), (Arrival(0, 1, 1),), bounds=Bounds(1, 1)))


def test_the_command_line(engine: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("at,prompt_tokens,output_tokens\n9,10,3\n10,3000,40\n10.1,12,5\n99,1,1\n")
    command = ["run", "--url", engine, "--model", "sim", "--trace", str(tmp_path / "trace.csv"), "--start", "10"]
    command += [
        "--duration",
        "5",
        "--max-prompt-tokens",
        "100",
        "--max-output-tokens",
        "4",
        "--ttft",
        "60",
        "--tpot",
        "60",
    ]
    command += ["--title", "A short run", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code in (0, 1), done.output  # 1: this machine was too busy for the client
    assert ("CLIENT WAS THE BOTTLENECK" in done.output) is (done.exit_code == 1)
    assert re.search(r"completed\s+2\b", done.output), done.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["outcomes"]["completed"] == 2
    assert summary["attainment"]["both"] == 1.0
    lines = [json.loads(line) for line in (tmp_path / "out" / "requests.jsonl").read_text().splitlines()]
    assert [(line["prompt_tokens_read"], line["tokens"]) for line in lines] == [(100, 4), (12, 4)]
    assert "A short run" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("flags", "says"),
    [(["--extra", "[]"], "JSON object"), (["--extra", "{"], "not JSON"), (["--rate", "0"], "rate is 0")],
)
def test_flags_that_make_no_sense(flags: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["run", "--url", "http://127.0.0.1:1", "--model", "m", *flags])
    assert isinstance(done.exception, LoadError)
    assert says in str(done.exception)


def test_an_error_is_told_without_a_traceback() -> None:
    command = [sys.executable, "-m", "e2e.load", "run", "--url", "ftp://127.0.0.1:1", "--model", "m"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "must look like http://HOST:PORT" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
