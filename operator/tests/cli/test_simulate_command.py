"""`steelyard simulate` as a user runs it: figures, JSON, report, and errors that say what to do."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml
from profiles import PROFILE
from steelyard.cli.main import app
from typer.testing import CliRunner

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SERVICE = EXAMPLES / "simulated.yaml"
TRACE = EXAMPLES / "trace.csv"


def steelyard(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILE))
    return path


def test_policies_side_by_side_with_report(tmp_path):
    figures, report = tmp_path / "figures.json", tmp_path / "report.html"
    result = steelyard(
        *(
            "-f",
            SERVICE,
            "--trace",
            TRACE,
            "--duration",
            "60s",
            "--replicas",
            "4:1",
            "--json",
            figures,
            "--html",
            report,
        ),
        *("--policy", "ours", "--policy", "static=3:1", "--policy", "hpa-queue,target=4,window=60"),
    )
    assert result.exit_code == 0, result.output
    assert "hpa-queue,target=4,window=60" in result.output
    told = json.loads(figures.read_text())
    assert [run["policy"] for run in told["runs"]] == ["ours", "static=3:1", "hpa-queue,target=4,window=60"]
    for run in told["runs"]:
        requests = run["requests"]
        assert (
            requests["arrived"] == told["requests"] == requests["completed"] + requests["failed"] + requests["refused"]
        )
        assert 0 <= run["attainment"] <= min(run["ttft_attainment"], run["tpot_attainment"])
        assert run["ttft_seconds"]["p50"] <= run["ttft_seconds"]["p99"] <= run["ttft_seconds"]["max"]
        assert run["timeline"][0]["ready"]["decode"] >= 1
        quarters = run["attainment_by_prompt_quartile"]
        assert sum(part["requests"] for part in quarters) == told["requests"]
        assert run["worst_wait_seconds"] >= run["ttft_seconds"]["max"]
    assert told["runs"][0]["timeline"][0]["ready"] == {"prefill": 4, "decode": 1}
    page = report.read_text()
    plots = re.findall(r"<svg.*?</svg>", page)
    assert len(plots) >= 6
    for plot in plots:
        ElementTree.fromstring(plot)
    assert "static=3:1" in page
    for words in (
        "Attainment and cost",
        "Ratio over time",
        "Distribution of TTFT",
        "attained by prompt tokens",
        "worst wait",
    ):
        assert words in page, words


def test_the_sweep_of_ratios_and_figures_on_the_output(profile):
    result = steelyard(
        *("--profile", profile, "--replicas", "2:2", "--ttft", "500ms", "--tpot", "50ms", "--sweep", "ratio"),
        *("--pattern", "gamma", "--rate", "8", "--burstiness", "2", "--duration", "30s", "--json", "-"),
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.output)
    assert [run["policy"] for run in told["runs"]] == ["static=1:3", "static=2:2", "static=3:1"]


@pytest.mark.parametrize(
    "load",
    [
        ("--pattern", "sinusoid", "--period", "20s", "--swing", "0.8"),
        ("--pattern", "alternating", "--period", "10s", "--other-prompt-tokens", "3000", "--other-output-tokens", "20"),
        ("--trace", TRACE, "--start", "120s", "--speed", "6", "--scale", "1.5"),
    ],
    ids=["sinusoid", "alternating", "part of a trace"],
)
def test_every_kind_of_load_runs_and_repeats(profile, load):
    call = (
        "--profile",
        profile,
        "--replicas",
        "3",
        "--ttft",
        "1s",
        "--tpot",
        "50ms",
        "--duration",
        "20s",
        "--json",
        "-",
        *load,
    )
    one, other = steelyard(*call), steelyard(*call)
    assert one.exit_code == 0, one.output
    assert one.output == other.output
    assert json.loads(one.output)["runs"][0]["requests"]["completed"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "either --trace or --pattern"),
        (("--pattern", "poisson"), "--service with a manifest, or --profile"),
        (("--pattern", "squares", "-f", SERVICE), "there are poisson, gamma, sinusoid, alternating"),
        (("--trace", "nowhere.csv", "-f", SERVICE), "nowhere.csv: No such file"),
        (("--trace", SERVICE, "-f", SERVICE), "line 1 is"),
        (("--trace", TRACE, "-f", TRACE), "holds 0 InferenceServices"),
        (("--trace", TRACE, "-f", SERVICE, "--policy", "magic"), "policy 'magic' is unknown; there are ours, static"),
        (
            ("--trace", TRACE, "-f", SERVICE, "--policy", "hpa-queue,goal=3"),
            "setting 'goal' is unknown; there are window",
        ),
        (("--trace", TRACE, "-f", SERVICE, "--policy", "hpa-queue,target=few"), "target is 'few'; expected a number"),
        (("--trace", TRACE, "-f", SERVICE, "--policy", "static=0:1"), "write prefill:decode"),
        (("--trace", TRACE, "-f", SERVICE, "--replicas", "4"), "does not fit the service's topology"),
        (("--trace", TRACE, "-f", SERVICE, "--replicas", "4:4", "--budget", "6"), "8 replicas run at the start"),
        (
            ("--trace", TRACE, "-f", SERVICE, "--routing", "random"),
            "there are gateway, round-robin, least-loaded, wspt",
        ),
        (("--trace", TRACE, "-f", SERVICE, "--sweep", "size"), "there is only ratio"),
        (("--trace", TRACE, "-f", SERVICE, "--start", "9999s"), "nothing arrives"),
        (("--trace", TRACE, "-f", SERVICE, "--attainment", "100"), "above 0 and below 100"),
        (("--pattern", "poisson", "--rate", "0", "-f", SERVICE), "rate is 0"),
    ],
)
def test_errors_say_what_is_wrong_and_what_would_be_right(arguments, words):
    result = steelyard(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split()), result.output


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"objectives": {"timeToFirstToken": "-1s"}}, "timeToFirstToken"),
        ({"accelerator": "h2000"}, "h2000"),
        ({"prefill": {"replicas": {"min": 4, "max": 1}}}, "replicas"),
    ],
    ids=["a type", "the operator's check", "a rule of the CRD"],
)
def test_what_the_cluster_would_refuse_is_refused_in_the_words_of_render(tmp_path, change, words):
    body = yaml.safe_load(SERVICE.read_text())
    body["spec"] |= change
    path = tmp_path / "isv.yaml"
    path.write_text(yaml.safe_dump(body))
    result = steelyard("-f", path, "--trace", TRACE)
    rendered = CliRunner().invoke(app, ["render", "-f", str(path)])
    assert result.exit_code == rendered.exit_code == 2
    assert result.stderr == rendered.stderr
    assert words in result.stderr


def test_clients_that_give_up_are_counted(profile, tmp_path):
    figures = tmp_path / "figures.json"
    result = steelyard("--profile", profile, "--pattern", "poisson", "--rate", "12", "--duration", "40s", "--ttft", "1s", "--tpot",
                       "50ms", "--replicas", "1:1", "--policy", "static", "--prompt-tokens", "2000", "--client-timeout", "5s",
                       "--routing", "wspt", "--json", figures)  # fmt: skip
    assert result.exit_code == 0, result.output
    run = json.loads(figures.read_text())["runs"][0]
    assert 0 < run["requests"]["gave_up"] == run["requests"]["failed"]
    assert run["worst_wait_seconds"] <= 5.001


def test_a_prefix_cache_of_each_replica_shortens_prompts_that_begin_alike(profile, tmp_path):
    rows = [
        {"timestamp": 400 * n, "input_length": 4096, "output_length": 5, "hash_ids": [*range(7), 100 + n]}
        for n in range(60)
    ]
    trace, figures = tmp_path / "m.jsonl", tmp_path / "figures.json"
    trace.write_text("\n".join(map(json.dumps, rows)))
    means = []
    for tokens in ("0", "50000"):
        result = steelyard("--profile", profile, "--replicas", "2:1", "--trace", trace, "--ttft", "1s", "--tpot", "50ms",
                           "--policy", "static", "--prefix-cache", tokens, "--json", figures)  # fmt: skip
        assert result.exit_code == 0, result.output
        means.append(json.loads(figures.read_text())["runs"][0]["ttft_seconds"]["mean"])
    assert means[1] < means[0] / 2, "seven of eight blocks are there already"


def test_a_bar_is_shown_on_a_terminal(profile):
    """And the table does not mix with it: one goes to the errors, the other to the output."""
    leader, follower = pty.openpty()
    asked = (
        "--profile",
        profile,
        "--replicas",
        "1:1",
        "--pattern",
        "poisson",
        "--rate",
        "20",
        "--duration",
        "30s",
        "--ttft",
        "1s",
    )
    command = [sys.executable, "-c", "from steelyard.cli.main import main; main()", "simulate", *map(str, asked)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=follower, env={**os.environ, "TERM": "xterm"}, text=True
    ) as process:
        os.close(follower)
        shown = b""
        with contextlib.suppress(OSError):  # a terminal whose other end is closed ends so
            while chunk := os.read(leader, 1 << 16):
                shown += chunk
        out, _ = process.communicate()
    os.close(leader)
    assert process.returncode == 0, shown
    assert re.search(r"ours .*\d+/\d+", shown.decode().replace("\r", "")), shown
    assert "attained" in out
    assert "\x1b[" not in out


def test_a_profile_that_lacks_something_is_told(tmp_path):
    path = tmp_path / "short.json"
    path.write_text(json.dumps({key: value for key, value in PROFILE.items() if key != "decode"}))
    result = steelyard("--profile", path, "--replicas", "1:1", "--pattern", "poisson")
    assert result.exit_code == 2
    assert "decode is missing" in " ".join(result.output.split())


def test_a_replica_that_dies_costs_something(profile, tmp_path):
    figures = tmp_path / "figures.json"
    load = ("--profile", profile, "--pattern", "poisson", "--rate", "5", "--duration", "60s", "--ttft", "1s", "--tpot", "50ms",
            "--replicas", "1:2", "--policy", "static")  # fmt: skip
    lost = []
    for failures in ((), ("--fail", "decode@20s", "--fail", "decode@40s")):
        result = steelyard(*load, *failures, "--json", figures)
        assert result.exit_code == 0, result.output
        requests = json.loads(figures.read_text())["runs"][0]["requests"]
        lost.append(requests["failed"])
    assert lost[0] == 0 < lost[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("decode@soon", "decode@2m"),
        ("decode", "decode@2m"),
        ("router@5s", "there is no role 'router'; the service has prefill, decode"),
    ],
)
def test_a_failure_that_cannot_be_is_told(profile, text, words):
    result = steelyard("--profile", profile, "--pattern", "poisson", "--ttft", "1s", "--tpot", "50ms", "--replicas", "1:1",
                       "--fail", text)  # fmt: skip
    assert result.exit_code == 2
    assert words in re.sub(r"\s+", " ", result.output)
