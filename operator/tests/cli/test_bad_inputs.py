"""What makes no sense: each command names the flag or field, its value and the remedy, in words and by its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from operator_bodies import merged, service_body
from profiles import PROFILE
from steelyard.cli.main import app
from typer.testing import CliRunner

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SERVICE = str(EXAMPLES / "simulated.yaml")
TRACE = str(EXAMPLES / "trace.csv")
MODEL = ("plan", "--model", "Qwen/Qwen3-8B")
SERVED = ("simulate", "-f", SERVICE)
TRACED = (*SERVED, "--trace", TRACE)
MADE_UP = (*SERVED, "--pattern", "poisson", "--duration", "10s")

BINARY = b"\xff\xfe\x00\x01"
FILES: dict[str, bytes] = {
    "bin.yaml": BINARY,
    "list-without-items.yaml": b"kind: List\n",
    "list-of-numbers.yaml": b"kind: List\nitems: [5]\n",
    "list-of-text.yaml": b"kind: List\nitems: five\n",
    "in-itself.yaml": b"kind: InferenceService\nmetadata: &a {name: x, labels: *a}\n",
    "broken.yaml": b"kind: [\n",
    "nothing.yaml": b"",
    "service.yaml": yaml.safe_dump(service_body()).encode(),
    "accelerator-without-name.yaml": b"kind: Accelerator\nspec: {vendor: nvidia}\n",
    "accelerator-of-nothing.yaml": b"kind: Accelerator\nmetadata: {name: x}\nspec: {memory: plenty}\n",
    "list.json": b"[]",
    "text.json": b'{"hidden_size": "wide", "num_hidden_layers": 2}',
    "nested.json": b'{"text_config": 5}',
    "null.json": b"null",
    "profile.json": json.dumps(PROFILE).encode(),
    "nan.csv": b"at,prompt_tokens,output_tokens\n0,10,10\nnan,10,10\n",
    "tokens-nan.csv": b"at,prompt_tokens,output_tokens\n0,10,10\n1,nan,10\n",
    "inf.csv": b"at,prompt_tokens,output_tokens\n0,10,10\ninf,10,10\n",
    "azure-nan.csv": b"TIMESTAMP,ContextTokens,GeneratedTokens\n0,10,10\nnan,10,10\n",
    "nan.jsonl": b'{"timestamp": NaN, "input_length": 5, "output_length": 5}\n',
    "list.jsonl": b'{"timestamp": 0, "input_length": 5, "output_length": 5}\n[5]\n',
    "hashes.jsonl": b'{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": 5}\n',
    "bin.csv": b"at,prompt_tokens,output_tokens\n0,10,10\n\xff,10,10\n",
    "not-gzip.csv.gz": b"at,prompt_tokens,output_tokens\n",
    "kubeconfig-list.yaml": b"[]\n",
    "kubeconfig-text.yaml": b"clusters: five\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("inputs")
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    clients = place / "clients"
    clients.mkdir()
    (clients / "chunk-0-trace.csv").write_text("0,many,1,Gamma,,\n")
    (clients / "chunk-0-dataset.json").write_text(
        json.dumps({"0": {"input_tokens": "{4: 1}", "output_tokens": "{4: 1}"}})
    )
    return place


def told(folder: Path, arguments: tuple[str, ...], status: int, words: tuple[str, ...], text: str | None = None) -> str:
    """Run a command on files of the folder (written @NAME), and give what it said."""
    named = [argument.replace("@", f"{folder}/") if argument.startswith("@") else argument for argument in arguments]
    result = CliRunner().invoke(app, named, input=text)
    said = " ".join(result.stderr.split())
    assert result.exception is None or isinstance(result.exception, SystemExit), f"{result.exception!r}"
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    for word in words:
        assert word in said, said
    return said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--accelerator", "[/x]"), ("--accelerator is '[/x]'",)),
        (("--engine", "foo"), ("--engine is 'foo'", "vllm, sglang, tensorrt-llm")),
        (("--weights", "foo"), ("--weights is 'foo'", "fp8, int8")),
        (("--kv-cache", "foo"), ("--kv-cache is 'foo'", "fp8, int8")),
        (("--budget", "0"), ("--budget is 0", "leave it out")),
        (("--budget", "-1"), ("--budget is -1",)),
        (("--context-length", "0"), ("--context-length is 0", "between 16")),
        (("--context-length", "-5"), ("--context-length is -5",)),
        (("--prompt-tokens", "0"), ("--prompt-tokens is 0", "above 0")),
        (("--prompt-tokens", "nan"), ("--prompt-tokens is nan",)),
        (("--output-tokens", "0"), ("--output-tokens is 0",)),
        (("--rate", "0"), ("--rate is 0",)),
        (("--rate", "nan"), ("--rate is nan",)),
        (("--rate", "inf"), ("--rate is inf",)),
        (("--rate", "1e9"), ("--rate is 1000000000", "at most 100000")),
        (("--output-tokens", "1e300"), ("--output-tokens is 1e+300", "at most 16777216")),
        (("--context-length", "100000000"), ("--context-length is 100000000", "between 16 and 16777216")),
        (("--acceptance", "nan"), ("--acceptance is nan",)),
        (("--variation", "-1"), ("--variation is -1", "between 0")),
        (("--variation", "1000"), ("--variation is 1000",)),
        (("--ttft", "0"), ("--ttft is 0 s", "at least 1ms")),
        (("--tpot", "0s"), ("--tpot is 0 s",)),
        (("--attainment", "nan"), ("--attainment is nan",)),
        (("--accelerators", "/no/such.yaml"), ("--accelerators /no/such.yaml", "No such file")),
        (("--accelerators", "@bin.yaml"), ("--accelerators", "bin.yaml: byte 0 is not UTF-8")),
        (("--accelerators", "@service.yaml"), ("--accelerators", "kind is 'InferenceService'")),
        (("--accelerators", "@nothing.yaml"), ("holds 0 Accelerators",)),
        (("--accelerators", "@accelerator-without-name.yaml"), ("metadata.name is (absent)",)),
        (("--accelerators", "@accelerator-of-nothing.yaml"), ("spec.memory", "plenty")),
        (("--rates", "4,8"), ("--rates has no effect", "--profile")),
        (("--trace", TRACE, "--prompt-tokens", "5"), ("--prompt-tokens has no effect with --trace",)),
        (
            ("--trace", TRACE, "--output-tokens", "5", "--variation", "0"),
            ("--output-tokens, --variation have no effect",),
        ),
        (("-f", SERVICE), ("--model has no effect with --file",)),
        (("--profile", "@profile.json", "--trace", TRACE), ("--model has no effect with --profile",)),
        (("--json", "-", "--write", "-"), ("--write and --json are both -", "name two files")),
        (("--json", "@same", "--html", "@same"), ("--json and --html are both",)),
        (("--write", "/nope/x"), ("--write is /nope/x", "no folder /nope")),
        (("--html", "/nope/x"), ("--html is /nope/x", "no folder /nope")),
        (("--json", "/nope/x"), ("--json is /nope/x", "no folder /nope")),
        (("--json", "/tmp"), ("--json is /tmp", "is a folder")),
        (("--config", "@list.json"), ("--config", "list.json: holds []", "one JSON object")),
        (("--config", "@null.json"), ("null.json: holds None",)),
        (("--config", "@text.json"), ("--config", "text.json: is no model's config.json", "hidden_size")),
        (("--config", "@nested.json"), ("nested.json",)),
        (("--config", "@bin.yaml"), ("bin.yaml: byte 0 is not UTF-8",)),
        (("--trace", "@nan.csv"), ("nan.csv: line 3: at is 'nan'",)),
        (("--trace", str(EXAMPLES)), ("Is a directory",)),
    ],
)
def test_what_plan_cannot_be_asked(folder: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    told(folder, (*MODEL, *arguments), 1, words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rates", "4", "--budget", "1"), ("--budget is 1",)),
        (("--rates", "4", "--budget", "5000"), ("--budget is 5000",)),
        (("--rates", "0", "--budget", "2"), ("--rates is 0",)),
        (("--rates", "nan", "--budget", "2"), ("--rates is nan",)),
        (("--rates", "4", "--budget", "2", "--ttft", "0"), ("--ttft is 0 s",)),
        (("--rates", "4", "--budget", "2", "--attainment", "0"), ("--attainment is 0",)),
    ],
)
def test_what_a_measured_engine_cannot_be_asked(
    folder: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    told(folder, ("plan", "--profile", "@profile.json", "--trace", TRACE, *arguments), 1, words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--engine", "llama-cpp", "--accelerator", "l40s"),
            ("spec.accelerator: l40s", "computes on plain processors"),
        ),
        (("--engine", "llama-cpp"), ("spec.model.uri", "engine llama-cpp takes its weights from")),
        (("--engine", "tensorrt-llm", "--weights", "int8"), ("spec.quantization.weights: int8",)),
        (("--engine", "vllm", "--kv-cache", "kivi-2"), ("spec.quantization.kvCache: kivi-2",)),
    ],
)
def test_what_the_operator_would_refuse_of_an_engine_is_not_planned(
    folder: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    told(folder, (*MODEL, *arguments), 2, words)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "simulated", "llama-cpp"])
def test_what_is_written_for_an_engine_is_what_the_operator_takes(tmp_path: Path, engine: str) -> None:
    file = tmp_path / "isv.yaml"
    load = ("--rate", "2", "--prompt-tokens", "500", "--output-tokens", "50", "--ttft", "2s", "--tpot", "80ms")
    planned = CliRunner().invoke(app, [*MODEL, "--engine", engine, *load, "--write", str(file)])
    assert planned.exit_code == (2 if engine == "llama-cpp" else 0), planned.output
    assert file.exists() == (planned.exit_code == 0)
    if file.exists():
        image = ("--engines", "tensorrt-llm=registry.example/trt:1.3.0") if engine == "tensorrt-llm" else ()
        rendered = CliRunner().invoke(app, ["render", "-f", str(file), *image])
        assert rendered.exit_code == 0, rendered.output
        assert ("engine tensorrt-llm has no default image" in file.read_text()) == bool(image), "its reader is told too"
        apart = engine in ("vllm", "simulated")
        assert ("Disaggregated is not planned" in planned.stdout) != apart
        assert apart or yaml.safe_load(file.read_text())["spec"]["topology"] == "Aggregated"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 123}, ("metadata.name: 123: it must be a text", "quotes")),
        ({"name": True}, ("metadata.name: true: it must be a text",)),
        ({"name": {"a": "b"}}, ('metadata.name: {"a": "b"}: it must be a text',)),
        ({"namespace": 5}, ("metadata.namespace: 5: it must be a text",)),
        ({"labels": {"team": 5}}, ("metadata.labels.team: 5",)),
        ({"labels": "team"}, ('metadata.labels: "team"',)),
        ({"annotations": {"a": True}}, ("metadata.annotations.a: true",)),
    ],
)
@pytest.mark.parametrize("command", ["render", "plan", "simulate"])
def test_metadata_that_is_no_text_is_refused(
    folder: Path, tmp_path: Path, command: str, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    file = tmp_path / "isv.yaml"
    file.write_text(yaml.safe_dump(merged(service_body(), {"metadata": change})))
    load = ("--trace", TRACE) if command == "simulate" else ()
    told(folder, (command, "-f", str(file), *load), 2, words)


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ("metadata: {name: null}", "metadata.name: null: it must be a text"),
        ("metadata: {}", "metadata.name: (absent)"),
        ("metadata: five", 'metadata: "five": it must be an object'),
        ("{}", "metadata: null"),
    ],
)
def test_an_object_without_a_name_is_refused(folder: Path, meta: str, words: str) -> None:
    rest = yaml.safe_dump({key: value for key, value in service_body().items() if key != "metadata"})
    told(folder, ("render", "-f", "-"), 2, (words,), rest + (meta if meta != "{}" else ""))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("bin.yaml", "bin.yaml: byte 0 is not UTF-8"),
        ("list-without-items.yaml", "items of kind List is (absent); it must be a list"),
        ("list-of-numbers.yaml", "items[0] of kind List is 5; it must be an object"),
        ("list-of-text.yaml", "items of kind List is 'five'; it must be a list"),
        ("in-itself.yaml", "is not YAML that Kubernetes reads"),
        ("broken.yaml", "is not YAML"),
        ("nothing.yaml", "holds 0 InferenceServices"),
        ("missing.yaml", "No such file"),
    ],
)
@pytest.mark.parametrize("command", ["render", "plan", "simulate"])
def test_a_file_that_holds_no_service_is_told(folder: Path, command: str, file: str, words: str) -> None:
    load = ("--trace", TRACE) if command == "simulate" else ()
    told(folder, (command, "-f", f"@{file}", *load), 2 if command == "simulate" else 1, (words,))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("missing.yaml", "No such file"),
        ("bin.yaml", "is not UTF-8"),
        ("service.yaml", "kind is 'InferenceService'"),
        ("list-of-numbers.yaml", "items[0]"),
        ("accelerator-of-nothing.yaml", "spec.memory"),
    ],
)
@pytest.mark.parametrize("command", ["render", "simulate"])
def test_hardware_that_cannot_be_read_is_told(folder: Path, command: str, file: str, words: str) -> None:
    load = ("--trace", TRACE) if command == "simulate" else ()
    arguments = (command, "-f", SERVICE, "--accelerators", f"@{file}", *load)
    told(folder, arguments, 2 if command == "simulate" else 1, ("--accelerators", words))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*TRACED, "--max-sequences", "3"), ("--max-sequences has no effect with --service", "spec.batching")),
        (
            (*TRACED, "--rate", "5", "--burstiness", "3"),
            ("--rate, --burstiness have no effect with --trace", "--scale or --speed"),
        ),
        ((*MADE_UP, "--speed", "0"), ("--speed has no effect with --pattern",)),
        ((*MADE_UP, "--burstiness", "2"), ("--burstiness has no effect with --pattern poisson",)),
        ((*MADE_UP, "--prefix-cache", "5"), ("--prefix-cache has no effect with --pattern",)),
        (
            ("simulate", "--accelerators", "x", "--pattern", "poisson"),
            ("--accelerators has no effect without --service",),
        ),
        ((*MADE_UP, "--fail", "decode@2m"), ("--fail decode@2m comes after --duration 10s", "earlier time")),
        ((*TRACED, "--fail", "decode@20h"), ("--fail decode@20h comes after the last arrival",)),
        ((*MADE_UP, "--json", "@x", "--html", "@x"), ("--json and --html are both",)),
        ((*MADE_UP, "--html", "/nope/x.html"), ("--html is /nope/x.html", "no folder /nope")),
        ((*MADE_UP, "--json", "/tmp"), ("--json is /tmp", "is a folder")),
        ((*MADE_UP, "--ttft", "0"), ("--ttft is 0 s", "at least 1ms")),
        ((*MADE_UP, "--tpot", "0s"), ("--tpot is 0 s",)),
        ((*MADE_UP, "--rate", "nan"), ("--rate is nan", "above 0")),
        ((*MADE_UP, "--rate", "inf"), ("--rate is inf",)),
        ((*MADE_UP, "--rate", "0"), ("--rate is 0",)),
        ((*MADE_UP, "--rate", "1e30"), ("--rate: 1e+30 requests/s for 10 s", "shorter --duration")),
        ((*MADE_UP, "--prompt-tokens", "0"), ("--prompt-tokens is 0",)),
        ((*MADE_UP, "--output-tokens", "-3"), ("--output-tokens is -3",)),
        ((*MADE_UP, "--variation", "-1"), ("--variation is -1",)),
        ((*MADE_UP, "--scale", "0"), ("--scale is 0",)),
        ((*MADE_UP, "--scale", "inf"), ("--scale is inf",)),
        ((*TRACED, "--speed", "0"), ("--speed is 0",)),
        ((*TRACED, "--speed", "nan"), ("--speed is nan",)),
        ((*MADE_UP, "--client-timeout", "0"), ("--client-timeout is 0",)),
        ((*MADE_UP, "--duration", "0"), ("--duration is 0",)),
        ((*SERVED, "--pattern", "gamma", "--burstiness", "0"), ("--burstiness is 0",)),
        ((*SERVED, "--pattern", "sinusoid", "--swing", "5"), ("--swing is 5",)),
        ((*SERVED, "--pattern", "sinusoid", "--period", "0s"), ("--period is 0",)),
        ((*SERVED, "--pattern", "alternating", "--other-rate", "0"), ("--other-rate is 0",)),
        (
            (*SERVED, "--pattern", "alternating", "--swing", "0.3"),
            ("--swing has no effect with --pattern alternating",),
        ),
        ((*MADE_UP, "--policy", "[/x]"), ("--policy '[/x]' is unknown", "there are ours")),
        ((*MADE_UP, "--replicas", "[bold]"), ("--replicas has replicas '[bold]'", "write prefill:decode")),
        ((*MADE_UP, "--policy", "static=0:1"), ("--policy 'static=0:1' has replicas '0:1'", "write prefill:decode")),
        ((*MADE_UP, "--policy", "hpa-queue,target=0"), ("target is 0", "above 0")),
        ((*MADE_UP, "--policy", "hpa-queue,target=nan"), ("target is nan",)),
        ((*MADE_UP, "--policy", "hpa-queue,window=-1"), ("window is -1",)),
        (
            (*MADE_UP, "--replicas", "20000:1"),
            ("--replicas 20000:1 asks for 20000 prefill", "spec.prefill.replicas.max"),
        ),
        ((*MADE_UP, "--policy", "static=1:20000"), ("--policy static=1:20000", "1000 at most")),
        ((*MADE_UP, "--budget", "0"), ("--budget is 0",)),
        (("simulate", "--profile", "@profile.json", "--replicas", "1001:1", "--pattern", "poisson"), ("1000 at most",)),
        (("simulate", "--profile", "@list.json", "--replicas", "1:1", "--pattern", "poisson"), ("list.json",)),
        (("simulate", "--profile", "@bin.yaml", "--replicas", "1:1", "--pattern", "poisson"), ("bin.yaml",)),
        (
            (
                "simulate",
                "--profile",
                "@profile.json",
                "--replicas",
                "1:1",
                "--pattern",
                "poisson",
                "--max-sequences",
                "0",
            ),
            ("--max-sequences is 0",),
        ),
        ((*SERVED, "--trace", "@nan.csv"), ("nan.csv: line 3: at is 'nan'", "expected a number")),
        ((*SERVED, "--trace", "@inf.csv"), ("inf.csv: line 3: at is 'inf'",)),
        ((*SERVED, "--trace", "@tokens-nan.csv"), ("line 3: prompt_tokens is 'nan'",)),
        ((*SERVED, "--trace", "@azure-nan.csv"), ("line 3: TIMESTAMP is 'nan'",)),
        ((*SERVED, "--trace", "@nan.jsonl"), ("line 1: timestamp is nan",)),
        ((*SERVED, "--trace", "@list.jsonl"), ("line 2 is '[5]'", "JSON object")),
        ((*SERVED, "--trace", "@hashes.jsonl"), ("line 1: hash_ids is 5",)),
        ((*SERVED, "--trace", "@bin.csv"), ("bin.csv: is not UTF-8",)),
        ((*SERVED, "--trace", "@not-gzip.csv.gz"), ("not-gzip.csv.gz",)),
        ((*SERVED, "--trace", "@clients"), ("chunk-0-trace.csv: line 1 is '0,many,1",)),
        ((*SERVED, "--trace", "@clients", "--shared-cache"), ("--shared-cache has no effect",)),
    ],
)
def test_what_simulate_cannot_be_asked(folder: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    told(folder, arguments, 2, words)


@pytest.mark.parametrize("flag", ["--out", "--docs"])
def test_crds_tell_where_they_cannot_be_written(folder: Path, flag: str) -> None:
    told(folder, ("crds", flag, "@nothing.yaml"), 2, (flag, "nothing.yaml", "name a folder"))


@pytest.mark.parametrize(
    "file", ["bin.yaml", "broken.yaml", "kubeconfig-list.yaml", "kubeconfig-text.yaml", "nothing.yaml"]
)
def test_a_kubeconfig_that_is_none_is_told(folder: Path, file: str) -> None:
    told(folder, ("explain", "x", "--kubeconfig", f"@{file}"), 2, ())


def test_a_replica_may_die_while_a_trace_is_quiet() -> None:
    """Nothing arrives in the example's third minute; the failure is within --duration all the same."""
    result = CliRunner().invoke(app, [*TRACED, "--fail", "decode@2m", "--duration", "3m", "--json", "-"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["requests"] > 0


def test_a_trace_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Spreadsheets write one."""
    said: list[Any] = []
    marks: tuple[Callable[[str], bytes], ...] = (str.encode, lambda text: text.encode("utf-8-sig"))
    for encode in marks:
        file = tmp_path / "trace.csv"
        file.write_bytes(encode("at,prompt_tokens,output_tokens\n0,100,10\n1,100,10\n2,100,10\n"))
        result = CliRunner().invoke(app, [*SERVED, "--trace", str(file), "--json", "-"])
        assert result.exit_code == 0, result.output
        said.append(json.loads(result.stdout))
    assert said[0]["requests"] == 3
    assert said[0] == said[1]
