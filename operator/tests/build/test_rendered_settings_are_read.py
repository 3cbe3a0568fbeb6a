"""What the operator renders is read by the programs it is for: their own parsers take every command line and file.

A flag that an engine does not have stopped it at every start (defilantech/LLMKube#1030, C27).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from operator_bodies import KNOWN, SITE, service, simulated
from steelyard.build.meta import Body
from steelyard.build.render import children
from steelyard.catalog.engines import EMBEDDED_FLAGS, ENGINES
from steelyard.gateway.main import parse as read_gateway_arguments
from steelyard.gateway.settings import Settings, parse_settings
from steelyard_engine.profile import read_profile
from steelyard_engine.settings import read_arguments

STRATEGIES = ["static", "dynamic", "continuous", "chunked"]
SPECS: list[dict[str, Any]] = [
    {},
    {"topology": "Aggregated", "model": {"uri": "pvc://models/a/b.gguf"}},
    *({"batching": {"strategy": strategy}} for strategy in STRATEGIES),
    {"transfer": {"onFailure": "fail"}, "decode": {"resources": {"limits": {"cpu": "2500m"}}}},
    {"routing": {"requestTimeout": "1500ms", "replicas": 3}, "objectives": {"timePerOutputToken": "50ms"}},
    simulated(),
    {"quantization": {"kvCache": "int8"}, "speculation": {"method": "ngram", "tokens": 5, "promptLookup": 3}},
    {"speculation": {"method": "draft", "model": "/models/small.gguf"}},
    {"model": {"uri": "pvc://models/a/b.gguf", "adapters": [{"name": "legal", "uri": "pvc://adapters/legal.gguf"}]}},
    {"cache": {"eviction": {"policy": "streaming", "windowTokens": 500}}},
    simulated(
        {"speculation": {"method": "mtp", "tokens": 1}, "model": {"adapters": [{"name": "a", "uri": "hf://b/c"}]}}
    ),
    simulated({"topology": "Aggregated", "batching": {"maxSequences": 7}, "cache": {"kvTokens": 99_999}}),
]


def engines(rendered: list[Body]) -> list[tuple[str, list[str]]]:
    """Name and arguments of each engine."""
    found = []
    for child in rendered:
        if child["kind"] == "Deployment":
            container = child["spec"]["template"]["spec"]["containers"][0]
            if container["name"] == "engine":
                found.append((child["metadata"]["name"], list(container["args"])))
    return found


@pytest.mark.parametrize("spec", SPECS)
def test_the_engine_reads_its_command_line(spec: dict[str, Any]) -> None:
    of = service(spec)
    for name, args in engines(children(of, KNOWN, SITE)):
        role = name.rpartition("-")[2]
        read = read_arguments(args)
        batching = of.spec.batching_of(role)
        assert (read.port, read.kv_port, read.context_length) == (8000, 5600, of.spec.model.context_length)
        assert read.options.served_name == of.served_name
        assert (read.options.max_sequences, read.options.batching) == (batching.max_sequences, batching.strategy)
        assert read.options.max_batch_tokens == batching.max_batch_tokens
        assert read.kv_tokens == of.spec.kv_tokens_of(role)
        assert read.options.recompute is (of.spec.transfer.on_failure == "recompute")
        assert read.kv_type == {"int8": "q8_0"}.get(of.spec.quantization_of(role).kv_cache or "", "f16")
        wish, eviction = of.spec.speculation, of.spec.cache.eviction
        assert read.options.speculation == {"mtp": "draft"}.get(wish.method, wish.method)
        assert (read.guesses, read.lookup) == (wish.guesses, wish.lookup)
        assert read.options.adapters == tuple(adapter.name for adapter in of.spec.model.adapters)
        assert (read.options.window and read.options.window.recent) == eviction.window_tokens
        assert read.drain_timeout >= of.spec.routing.request_timeout.seconds, "no request is longer than its drain"


def test_every_flag_of_the_engine_has_an_owner(capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that the table lacks could be used behind a typed field's back (C32)."""
    with pytest.raises(SystemExit):
        read_arguments(["--help"])
    flags = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert flags == {*EMBEDDED_FLAGS, *ENGINES["llama-cpp"].users_flags}


def test_threads_are_whole_cores_and_at_least_one() -> None:
    for cpu, threads in (("2500m", 2), ("250m", 1), ("4", 4)):
        rendered = children(service({"decode": {"resources": {"limits": {"cpu": cpu}}}}), KNOWN, SITE)
        assert read_arguments(dict(engines(rendered))["chat-decode"]).threads == threads


@pytest.mark.parametrize("spec", [spec for spec in SPECS if "engine" in spec])
def test_the_simulated_engine_reads_its_profile(spec: dict[str, Any], tmp_path: Path) -> None:
    of = service(spec)
    files = [c["data"]["profile.json"] for c in children(of, KNOWN, SITE) if "profile.json" in c.get("data", {})]
    assert len(files) == len(of.spec.roles)
    for index, text in enumerate(files):
        file = tmp_path / f"{index}.json"
        file.write_text(text)
        profile = read_profile(file)
        assert 0 < profile.decode.seconds(1, 0) < profile.decode.seconds(64, 0.9) < 1
        assert 0 < profile.prefill.seconds(100) < profile.prefill.seconds(10_000)


@pytest.mark.parametrize("spec", SPECS)
def test_the_gateway_reads_its_settings_and_command_line(spec: dict[str, Any]) -> None:
    of = service(spec)
    rendered = children(of, KNOWN, SITE)
    text = next(c["data"]["gateway.json"] for c in rendered if "gateway.json" in c.get("data", {}))
    settings = parse_settings(text.encode())
    assert (settings.service, settings.namespace, settings.served_name) == (of.name, of.namespace, of.served_name)
    assert settings.topology == of.spec.topology
    assert settings.context_length == of.spec.model.context_length
    assert settings.gateways == of.spec.routing.replicas
    gateway = next(c for c in rendered if c["kind"] == "Deployment" and c["metadata"]["name"] == "chat")
    pod = gateway["spec"]["template"]["spec"]
    options = read_gateway_arguments(pod["containers"][0]["args"])
    assert (options.port, options.metrics_port) == (8000, 9090)
    assert pod["terminationGracePeriodSeconds"] > options.drain_delay + options.drain_timeout
    assert options.drain_timeout >= of.spec.routing.request_timeout.seconds


def test_every_setting_of_the_gateway_is_written() -> None:
    """A field that the operator leaves out would get the gateway's own default, which no user chose."""
    text = next(
        c["data"]["gateway.json"] for c in children(service(), KNOWN, SITE) if "gateway.json" in c.get("data", {})
    )
    assert set(json.loads(text)) == set(Settings.__struct_encode_fields__)
