"""Every argument list that we render for vLLM and SGLang is read by the engine's own parser, and says there what was meant.

C27 (defilantech/LLMKube#1030): an operator always added a flag which the engine did not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from engine_bodies import BASES, Spec, with_sample
from operator_bodies import KNOWN, SITE, merged, service
from steelyard.api.service import InferenceService
from steelyard.build.engines import choose
from steelyard.catalog.abilities import ABILITIES, Setting
from steelyard.catalog.engines import ENGINES
from steelyard.decide.accept import refusals

from e2e.parsers import reading
from e2e.parsers.reading import Reading

pytestmark = [pytest.mark.engines, pytest.mark.timeout(2 * reading.SECONDS)]
EXAMPLES = sorted((Path(__file__).parents[3] / "docs" / "examples").glob("*.yaml"))
NO_FLAG = "--no-such-flag"
READERS = {"vllm": reading.vllm, "sglang": reading.sglang}
AGGREGATED = {"topology": "Aggregated"}
WIDE = {"accelerator": "gb200", "parallelism": {"data": 16, "expert": True}, "model": {"shape": {"experts": 256}}}


def specs(engine: str) -> Iterator[tuple[str, Spec]]:
    """Services of an engine, named: each ability in each topology, replicas over nodes, other places of weights."""
    base = BASES[engine]
    yield "base", base
    for place in ("pvc://models/a/b", "s3://bucket/models/a", "oci://models/a:1/sub"):
        yield place, merged(base, {"model": {"uri": place}})
    yield "over nodes", merged(base, WIDE)
    yield "on processors", merged(base, {"accelerator": "cpu"})
    if engine == "vllm":
        yield "roles that are fixed", merged(base, {"autoscaling": {"roleChange": "Never"}})
    for row in ABILITIES:
        if is_read(engine, row):
            yield row.title, with_sample(base, row)
            yield (
                f"{row.title}, aggregated",
                merged(with_sample(base, row), {"prefill": None, "decode": None, **AGGREGATED}),
            )


def is_read(engine: str, row: Setting) -> bool:
    """Whether the engine's parser reads what a row renders: what has run too, but for rows without a say in any engine."""
    return row.shown(engine) == "parsed" or (row.shown(engine) == "run" and set(row.cells.values()) != {"run"})


def examples(engine: str) -> Iterator[tuple[str, InferenceService]]:
    for path in EXAMPLES:
        for body in yaml.safe_load_all(path.read_text()):
            if body and body.get("kind") == "InferenceService":
                of = InferenceService.read(body)
                if of.spec.engine.name == engine:
                    yield path.name, of


def lists(engine: str) -> Iterator[tuple[str, list[str]]]:
    """Argument lists of all pods, with what the kubelet puts into them."""
    services = [*((name, service(spec)) for name, spec in specs(engine)), *examples(engine)]
    for name, of in services:
        if refusals(of, KNOWN):
            continue
        for role in of.spec.roles:
            parts = choose.parts(of, role, KNOWN[of.spec.accelerator_of(role)], SITE)
            for kind, args in (("leader", parts.args), ("follower", parts.follower_args)):
                if args:
                    yield f"{name}, {role}, {kind}", [filled(argument) for argument in args]


def filled(argument: str) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: {"LWS_WORKER_INDEX": "1"}.get(found[1], "10.0.0.1"), argument)


def owned(engine: str) -> list[str]:
    """Long flags with an owner; how later versions of vLLM switch off is in operator/tests/build/test_vllm_versions.py."""
    return [
        flag
        for flag in ENGINES[engine].flags
        if flag.startswith("--") and not (engine == "vllm" and "--disable" in flag)
    ]


@cache
def readings(engine: str) -> dict[str, Reading]:
    start = [] if engine == "vllm" else ["--model-path", "m"]
    named = dict(lists(engine)) | {flag: [*start, flag, "1"] for flag in (NO_FLAG, *owned(engine))}  # one start for all
    return dict(zip(named, READERS[engine](list(named.values()), print), strict=True))


@pytest.mark.parametrize("engine", READERS)
def test_the_engine_takes_every_list(engine: str) -> None:
    found = {name: one for name, one in readings(engine).items() if not name.startswith("--")}
    assert len(found) > 50
    assert {name: one.error for name, one in found.items() if one.error is not None} == {}


@pytest.mark.parametrize("engine", READERS)
def test_every_ability_that_is_said_to_be_parsed_was(engine: str) -> None:
    titles = {row.title for row in ABILITIES if is_read(engine, row)}
    read = {name.split(", ")[0] for name in readings(engine)}
    assert titles - read == set()


VLLM_MEANINGS: list[tuple[str, dict[str, str]]] = [
    ("base, prefill, leader", {"model_tag": "org/model", "revision": "main", "max_model_len": "4096", "port": "8000"}),
    ("continuous batches, decode, leader", {"enable_chunked_prefill": "False"}),
    ("chunked prefill, decode, leader", {"enable_chunked_prefill": "True"}),
    ("prefixes not shared, prefill, leader", {"enable_prefix_caching": "False"}),
    ("most sequences, prefill, leader", {"max_num_seqs": "7"}),
    ("KV cache in FP8, prefill, leader", {"kv_cache_dtype": "fp8"}),
    ("tensor parallel, prefill, leader", {"tensor_parallel_size": "2"}),
    (
        "over nodes, prefill, follower",
        {"headless": "True", "node_rank": "1", "nnodes": "4", "data_parallel_size": "16"},
    ),
    ("over nodes, decode, leader", {"headless": "False", "node_rank": "0", "all2all_backend": "deepep_low_latency"}),
    ("size of the KV cache, prefill, leader", {"num_gpu_blocks_override": "4096"}),
]


@pytest.mark.parametrize(("name", "says"), VLLM_MEANINGS, ids=[name for name, _ in VLLM_MEANINGS])
def test_vllm_understands_what_was_meant(name: str, says: dict[str, str]) -> None:
    read = readings("vllm")[name].read
    assert {option: read[option] for option in says} == says


def test_vllm_reads_its_connectors_as_types() -> None:
    """The parser builds the engine's own configuration from the JSON: a key that it lacks would be an error above."""
    base = readings("vllm")["base, prefill, leader"].read["kv_transfer_config"]
    assert "kv_connector='NixlConnector'" in base
    assert "kv_role='kv_both'" in base
    fixed = readings("vllm")["roles that are fixed, decode, leader"].read["kv_transfer_config"]
    assert "kv_role='kv_consumer'" in fixed
    assert "kv_load_failure_policy='recompute'" in base
    assert (
        "MultiConnector"
        in readings("vllm")["overflow into the pod's memory, prefill, leader"].read["kv_transfer_config"]
    )


SGLANG_MEANINGS: list[tuple[str, dict[str, str]]] = [
    ("base, aggregated, leader", {"model_path": "org/model", "revision": "main", "context_length": "4096"}),
    ("continuous batches, aggregated, leader", {"chunked_prefill_size": "-1"}),
    ("data parallel, aggregated, leader", {"dp_size": "2", "tp_size": "2"}),
    (
        "guesses of an EAGLE-3 head, aggregated, leader",
        {"speculative_algorithm": "EAGLE3", "speculative_num_steps": "4"},
    ),
    ("over nodes, aggregated, follower", {"nnodes": "4", "node_rank": "1", "dist_init_addr": "10.0.0.1:29500"}),
]


@pytest.mark.parametrize(("name", "says"), SGLANG_MEANINGS, ids=[name for name, _ in SGLANG_MEANINGS])
def test_sglang_understands_what_was_meant(name: str, says: dict[str, str]) -> None:
    read = readings("sglang")[name].read
    assert {option: read[option] for option in says} == says


@pytest.mark.parametrize("engine", READERS)
def test_a_flag_that_the_engine_lacks_is_found(engine: str) -> None:
    assert unrecognized(NO_FLAG, readings(engine)[NO_FLAG])


@pytest.mark.parametrize("engine", READERS)
def test_owned_flags_exist(engine: str) -> None:
    """A misspelt entry in the table of owners would protect nothing."""
    assert [flag for flag in owned(engine) if unrecognized(flag, readings(engine)[flag])] == []


def unrecognized(flag: str, one: Reading) -> bool:
    return one.error is not None and "unrecognized arguments" in one.error and flag in one.error
