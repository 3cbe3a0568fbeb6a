"""The tables of formats and kernels: what a value takes, and which cell says what."""

from __future__ import annotations

import pytest
from steelyard.catalog import formats, kernels, versions
from steelyard.catalog.engines import version_told
from steelyard.catalog.kernels import KERNELS, Asked, Kernel
from steelyard.catalog.versions import Range


@pytest.mark.parametrize(
    ("name", "shared", "bits"),
    [
        ("none", 4096, 16), ("fp8", 4096, 8 + 32 / 4096), ("int4-awq", 4096, 4.15625), ("nvfp4", 4096, 4.5),
        ("mxfp4", 4096, 4.25), ("nf4", 4096, 4 + 8.127 / 64),
    ],
)  # fmt: skip
def test_bits_of_a_weight(name: str, shared: int, bits: float) -> None:
    assert formats.WEIGHTS[name].width(shared) == pytest.approx(bits)


@pytest.mark.parametrize(
    ("name", "head", "bits"),
    [("none", 128, 16), ("fp8", 128, 8), ("int4", 128, 4.25), ("int4", 64, 4.5), ("kivi-2", 128, 3)],
)
def test_bits_of_a_cached_value(name: str, head: int, bits: float) -> None:
    assert formats.KV[name].width(head) == pytest.approx(bits)


# given engine, weights, activations, capability, version, experts → verdict, format of products
CELLS = [
    ("C02", "vllm", "fp8", "auto", "8.0", "0.8.5", True, "refused", "bf16"),
    ("C03 vllm", "vllm", "fp8", "auto", "8.0", "0.32.0", True, "fallback", "bf16"),
    ("C03 sglang", "sglang", "fp8", "auto", "8.0", None, True, "refused", "bf16"),
    ("C01", "vllm", "fp8", "fp8", "8.0", "0.32.0", False, "refused", "fp8"),
    ("dense on Ampere", "vllm", "fp8", "auto", "8.0", "0.8.5", False, "fallback", "bf16"),
    ("Ada has fp8", "vllm", "fp8", "auto", "8.9", "0.32.0", True, "good", "fp8"),
    ("C06 both", "vllm", "nvfp4", "nvfp4", "9.0", "0.32.0", False, "refused", "fp4"),
    ("C06 weight-only", "vllm", "nvfp4", "none", "9.0", "0.32.0", False, "good", "bf16"),
    ("C06 auto", "vllm", "nvfp4", "auto", "9.0", "0.32.0", False, "fallback", "bf16"),
    ("Blackwell", "vllm", "nvfp4", "auto", "10.3", "0.32.0", True, "good", "fp4"),
    ("RTX PRO 6000 is 12.0", "vllm", "nvfp4", "auto", "12.0", "0.32.0", False, "good", "fp4"),
    ("bitsandbytes is gone", "vllm", "nf4", "auto", "9.0", "0.32.0", False, "refused", "bf16"),
    ("bitsandbytes was there", "vllm", "nf4", "auto", "9.0", "0.20.0", False, "good", "bf16"),
    ("integers end at Hopper", "vllm", "int8", "auto", "9.0", "0.32.0", False, "good", "int8"),
    ("TensorRT-LLM, fp8 on Ampere", "tensorrt-llm", "fp8", "auto", "8.0", None, False, "refused", "fp8"),
    ("4 bits in 8-bit products", "vllm", "int4-awq", "int8", "9.0", "0.32.0", False, "refused", "bf16"),
]  # fmt: skip


@pytest.mark.parametrize("cell", CELLS, ids=[cell[0] for cell in CELLS])
def test_cells(cell: tuple[str, str, str, str, str, str | None, bool, str, str]) -> None:
    _, engine, weights, activations, capability, version, experts, verdict, products = cell
    found = kernels.find(Asked(engine, weights, activations, "nvidia", capability, versions.version(version), experts))
    assert found is not None
    assert (found.verdict, found.products) == (verdict, products)


def test_what_nobody_knows_is_unknown() -> None:
    assert kernels.find(Asked("vllm", "fp8", "auto", "nvidia", None, None, False)) is None
    assert kernels.find(Asked("vllm", "int8", "auto", "nvidia", "10.0", None, False)) is None


@pytest.mark.parametrize("row", KERNELS, ids=lambda row: f"{row.engine} {row.weights} {row.verdict}")
def test_rows_are_whole(row: Kernel) -> None:
    """A cell that is not good says what is lost and what to do; each has its source."""
    assert row.source
    assert bool(row.because) == (row.verdict != "good")
    assert row.products in ("bf16", "fp8", "fp4", "int8", "fp32")
    assert row.weights.endswith("*") or row.weights in formats.WEIGHTS


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm:0.8.5", (0, 8, 5)), ("vllm/vllm-openai:v0.19.0-cu130", (0, 19, 0)), ("x.example:5000/vllm", None),
        ("vllm:latest", None), ("vllm:0.10@sha256:abc", (0, 10)), (None, None), ("vllm:20250101", None),
    ],
)  # fmt: skip
def test_versions_of_images(image: str | None, version: tuple[int, ...] | None) -> None:
    assert versions.of_image(image) == version


@pytest.mark.parametrize(
    ("engine", "image", "version"),
    [
        ("vllm", "vllm/vllm-openai:v0.33.2-cu130", (0, 33, 2)),
        ("vllm", "nvcr.io/nvidia/vllm:25.09-py3", None),
        ("vllm", "mirror/vllm:2026.11.3", None),
        ("sglang", "mirror/sglang:v0.6.0", (0, 6, 0)),
        ("tensorrt-llm", "mirror/tensorrt-llm:1.3.0rc4", (1, 3, 0)),
        ("tensorrt-llm", "mirror/tensorrt-llm:25.09", None),
        ("llama-cpp", "mirror/engine:1.2", None),
    ],
)
def test_a_tag_is_believed_where_it_can_be_the_engines_version(
    engine: str, image: str, version: tuple[int, ...] | None
) -> None:
    assert version_told(engine, image) == version


def test_ranges() -> None:
    wanted = Range.of_versions(">=0.20,<0.32")
    assert [wanted.holds(versions.version(v)) for v in ("0.19.9", "0.20", "0.31.5", "0.32")] == [
        False,
        True,
        True,
        False,
    ]
    assert not wanted.holds(None)
    assert Range().holds(None)
    with pytest.raises(ValueError, match="~=1"):
        Range.of_versions("~=1")
