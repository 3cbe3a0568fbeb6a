"""Flags drift between releases: what is rendered for each supported version of vLLM, against that version's own list of options.

0.32's own parser reads the same argument lists in `operator/tests/parsers`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engine_bodies import BASES, with_sample
from operator_bodies import KNOWN, SITE, merged, service
from steelyard.build.engines import choose
from steelyard.catalog.abilities import ABILITIES
from steelyard.catalog.engines import VLLM_FLAGS
from steelyard.decide.accept import refusals

DATA = Path(__file__).parent / "data"
VERSIONS = ("0.32", "0.33")


def known(version: str) -> set[str]:
    return {line for line in (DATA / f"vllm-{version}.flags").read_text().splitlines() if line.startswith("--")}


def flags(engine: dict[str, Any], change: dict[str, Any]) -> set[str]:
    of = service(merged(merged(BASES["vllm"], change), {"engine": engine}))
    parts = choose.parts(of, "decode" if "decode" in of.spec.roles else "aggregated", KNOWN["h200"], SITE)
    return {argument for argument in (*parts.args, *parts.follower_args) if argument.startswith("--")}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_flag_is_an_option_of_the_version(version: str) -> None:
    seen: set[str] = set()
    for row in ABILITIES:
        change = with_sample({}, row)
        if not refusals(service(merged(BASES["vllm"], change)), KNOWN):
            seen |= flags({"version": f"{version}.0"}, change)
    seen |= flags({"version": f"{version}.0"}, {"parallelism": {"tensor": 16}})
    assert len(seen) > 30
    assert seen <= known(version)


@pytest.mark.parametrize(
    ("engine", "off"),
    [
        ({}, "--no-enable-prefix-caching"),
        ({"version": "0.32.1"}, "--no-enable-prefix-caching"),
        ({"version": "0.33.0"}, "--disable-prefix-caching"),
        ({"image": "vllm/vllm-openai:v0.33.0-cu130"}, "--disable-prefix-caching"),
        ({"image": "mirror:5000/vllm:nightly"}, "--no-enable-prefix-caching"),
        ({"version": "0.32.0", "image": "vllm/vllm-openai:v0.33.0"}, "--no-enable-prefix-caching"),
    ],
)
def test_switches_are_spelt_as_the_version_spells_them(engine: dict[str, Any], off: str) -> None:
    """Told by the version that is written, else by the image's tag, else it is the operator's."""
    found = flags(engine, {"cache": {"prefixReuse": False}})
    assert {flag for flag in found if flag.endswith("prefix-caching")} == {off}


@pytest.mark.parametrize(
    ("change", "prefill", "decode", "because"),
    [
        ({}, "kv_both", "kv_both", "pods may change their role"),
        ({"autoscaling": {"roleChange": "Never"}}, "kv_producer", "kv_consumer", "they may not"),
        ({"prefill": {"parallelism": {"tensor": 2}}}, "kv_producer", "kv_consumer", "they are spread differently"),
        ({"prefill": {"quantization": {"weights": "fp8"}}}, "kv_producer", "kv_consumer", "they hold other numbers"),
    ],
)
def test_engines_are_told_what_they_do_with_kv(change: dict[str, Any], prefill: str, decode: str, because: str) -> None:
    of = service(merged(BASES["vllm"], change))
    told = {}
    for role in of.spec.roles:
        args = choose.parts(of, role, KNOWN["h200"], SITE).args
        told[role] = json.loads(args[args.index("--kv-transfer-config") + 1])["kv_role"]
    assert told == {"prefill": prefill, "decode": decode}, because


def test_a_store_beside_the_hand_off_gives_and_takes_in_every_role() -> None:
    change = {"autoscaling": {"roleChange": "Never"}, "cache": {"offload": {"kind": "cpu", "memory": "1Gi"}}}
    args = choose.parts(service(merged(BASES["vllm"], change)), "prefill", KNOWN["h200"], SITE).args
    whole = json.loads(args[args.index("--kv-transfer-config") + 1])
    parts = whole["kv_connector_extra_config"]["connectors"]
    assert (whole["kv_role"], [one["kv_role"] for one in parts]) == ("kv_both", ["kv_producer", "kv_both"])


def test_owned_flags_are_options_of_some_version() -> None:
    """A misspelt entry in the table of owners would protect nothing."""
    somewhere = set().union(*map(known, VERSIONS))
    assert {flag for flag in VLLM_FLAGS if flag.startswith("--")} <= somewhere | {"--config"}
