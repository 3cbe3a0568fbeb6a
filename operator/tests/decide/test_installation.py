"""What depends on the installation: its images of engines, and the versions that they hold."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bodies import BASES
from operator_bodies import KNOWN, SITE, merged, service
from steelyard.build.engines import choose
from steelyard.decide.accept import message
from steelyard.decide.installation import as_installed, of_another_version, without_image
from steelyard.decide.site import Site


@pytest.mark.parametrize(
    ("engine", "named", "refused"),
    [
        ({"name": "tensorrt-llm"}, {}, True),
        ({"name": "tensorrt-llm"}, {"vllm": "mirror/vllm:1"}, True),
        ({"name": "tensorrt-llm"}, {"tensorrt-llm": "mirror/tensorrt-llm:1.2.1"}, False),
        ({"name": "tensorrt-llm", "image": "mirror/tensorrt-llm:1.2.1"}, {}, False),
        ({"name": "vllm"}, {}, False),
        ({"name": "sglang"}, {}, False),
        ({"name": "simulated"}, {}, False),
        ({}, {}, False),
    ],
)
def test_an_engine_without_a_project_image_needs_one_named(
    engine: dict[str, Any], named: dict[str, str], refused: bool
) -> None:
    """A name without a registry would be whoever's has it in the public one, with the tenant's token."""
    found = without_image(service({"engine": engine}), named, KNOWN)
    assert [refusal.field for refusal in found] == (["spec.engine.image"] if refused else [])
    if refused:
        assert "images.engines.tensorrt-llm" in message(found)


@pytest.mark.parametrize(
    ("engine", "named", "hardware", "refused"),
    [
        ({}, {}, "mi300x", True),
        ({}, {"vllm": "vllm/vllm-openai:v0.32.0"}, "mi300x", True),
        ({}, {"vllm": "mirror/vllm-rocm:v0.32.0"}, "mi300x", False),
        ({"image": "rocm/vllm:0.32"}, {}, "mi300x", False),
        ({}, {}, "h200", False),
        ({"name": "sglang"}, {}, "mi300x", True),
        ({"name": "simulated"}, {}, "mi300x", False),
    ],
)
def test_an_image_for_cuda_is_not_for_amd(
    engine: dict[str, Any], named: dict[str, str], hardware: str, refused: bool
) -> None:
    """Its pods would take an accelerator each and end at the first import."""
    wish = merged(BASES[engine.get("name", "vllm")], {"engine": engine, "accelerator": hardware})
    found = without_image(service(wish), named, KNOWN)
    assert [refusal.field for refusal in found] == (["spec.engine.image"] if refused else [])
    if refused:
        assert "mi300x" in message(found)
        assert "name engine.image (a ROCm build)" in message(found)


@pytest.mark.parametrize(("network", "way"), [("tcp", "tcp,sm,self"), ("rdma", "rc,ud,sm,self")])
@pytest.mark.parametrize(("hardware", "copiers"), [("h200", "cuda_copy,cuda_ipc"), ("mi300x", "rocm_copy,rocm_ipc")])
def test_what_is_handed_over_is_copied_by_the_vendors_own(network: str, way: str, hardware: str, copiers: str) -> None:
    spec = {"engine": {"image": "mine:1"}, "accelerator": hardware, "transfer": {"network": network}}
    env = choose.parts(service(merged(BASES["vllm"], spec)), "decode", KNOWN[hardware], SITE).env
    assert {"name": "UCX_TLS", "value": f"{way},{copiers}"} in env


VERSIONS = [
    ({}, {}, None, "nothing is written"),
    ({"version": "0.32.1"}, {}, None, "the project's image is of that release"),
    ({"version": "0.33.0"}, {}, "vllm/vllm-openai:v0.32.0", "the project's image is another release"),
    ({"version": "0.33.0"}, {"vllm": "mirror/vllm:v0.33.2"}, None, "the installation's is that one"),
    ({"version": "0.32.0"}, {"vllm": "mirror/vllm:v0.33.2"}, "mirror/vllm:v0.33.2", "and not this one"),
    ({"version": "0.33.0"}, {"vllm": "mirror/vllm:ours"}, None, "a tag that tells nothing contradicts nothing"),
    ({"version": "0.33.0"}, {"vllm": "nvcr.io/nvidia/vllm:25.09-py3"}, None, "a month is no version"),
    ({"version": "0.33.0"}, {"vllm": "mirror/vllm:2026.11.3"}, None, "nor is a mirror's own count"),
    ({"version": "0.33.0", "image": "mine:v0.32.0"}, {}, None, "of an image of the user's own the written word counts"),
]


@pytest.mark.parametrize(("engine", "named", "image", "because"), VERSIONS, ids=[row[-1] for row in VERSIONS])
def test_a_written_version_is_that_of_the_image(
    engine: dict[str, Any], named: dict[str, str], image: str | None, because: str
) -> None:
    """Else the command line would be another release's, and no pod of it would start."""
    found = of_another_version(service(merged(BASES["vllm"], {"engine": engine})), named)
    assert [refusal.field for refusal in found] == (["spec.engine.version"] if image else []), because
    if image:
        assert f"its image here is {image}; name one of that version in spec.engine.image" in message(found)


@pytest.mark.parametrize(
    ("named", "engine", "off"),
    [
        ("mirror/vllm:v0.33.2", {}, "--disable-prefix-caching"),
        ("mirror/vllm:v0.33.2", {"version": "0.32.0"}, "--no-enable-prefix-caching"),
        ("mirror/vllm:v0.33.2", {"image": "mine:1"}, "--no-enable-prefix-caching"),
        ("mirror/vllm:ours", {}, "--no-enable-prefix-caching"),
        ("nvcr.io/nvidia/vllm:25.09-py3", {}, "--no-enable-prefix-caching"),
        ("mirror/vllm:2026.11.3", {}, "--no-enable-prefix-caching"),
        ("mirror/vllm:2026.11.3", {"version": "0.33.0"}, "--disable-prefix-caching"),
        ("mirror/vllm:ours", {"image": "nvcr.io/nvidia/vllm:25.09-py3"}, "--no-enable-prefix-caching"),
    ],
)
def test_flags_are_those_of_the_installations_image(named: str, engine: dict[str, Any], off: str) -> None:
    site = Site(gateway_image=SITE.gateway_image, engine_image=SITE.engine_image, engine_images={"vllm": named})
    of = service(merged(BASES["vllm"], {"engine": engine, "cache": {"prefixReuse": False}}))
    assert off in choose.parts(of, "decode", KNOWN["h200"], site).args


def test_only_what_nobody_says_is_read_from_the_image() -> None:
    of = service(BASES["vllm"])
    assert as_installed(of, {"vllm": "mirror/vllm:v0.33.2-cu130"}).spec.engine.version == "0.33.2"
    assert as_installed(of, {"sglang": "mirror/sglang:v0.6.0"}) is of
    assert as_installed(of, {"vllm": "nvcr.io/nvidia/vllm:25.09-py3"}) is of, "a month"
