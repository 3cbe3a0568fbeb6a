"""The hardware catalogue: each figure has a source and lies where physics allows it."""

import pytest
from steelyard.catalog.accelerators import ACCELERATORS, CATALOGUE, Entry, read

entries = pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE.keys())


def test_the_promised_hardware_is_there() -> None:
    assert set(ACCELERATORS) == {
        "a100", "l40s", "h100", "h200", "b200", "b300", "gb200", "gb300", "rubin", "rubin-cpx", "rtx-pro-6000", "mi300x", "cpu",
    }  # fmt: skip


@entries
def test_every_figure_has_a_source(entry: Entry) -> None:
    assert entry.title
    assert all(entry.sources.values())
    spec = entry.accelerator.spec
    assert (spec.price_per_hour is None) == ("pricePerHour" not in entry.sources)
    assert (spec.memory is None) == ("memory" not in entry.sources)


@entries
def test_figures_are_plausible(entry: Entry) -> None:
    """Guards against a slipped unit: GB for GiB, TFLOP/s for FLOP/s, sparse for dense."""
    spec = entry.accelerator.spec
    if spec.memory is not None:
        assert 40e9 < spec.memory.value < 320e9
        assert spec.memory_bandwidth is not None
        assert 0.5e12 < spec.memory_bandwidth < 30e12
    peak = spec.peak
    if peak.bf16 and peak.fp8:
        assert 1.9 <= peak.fp8 / peak.bf16 <= 2.1
    if peak.fp8 and peak.fp4:
        assert 1.9 <= peak.fp4 / peak.fp8 <= 3.2
    if spec.interconnect:
        assert 30e9 <= spec.interconnect.per_direction <= 2e12


def test_counted_hardware_is_found_by_label() -> None:
    """Without a label, pods of one kind of GPU would land on another with the same resource name."""
    for entry in CATALOGUE.values():
        spec = entry.accelerator.spec
        if spec.resource and spec.availability == "Available":
            assert spec.node_selector, entry.title


def test_announced_hardware_is_marked() -> None:
    announced = {name for name, accelerator in ACCELERATORS.items() if accelerator.spec.availability == "Announced"}
    assert announced == {"rubin", "rubin-cpx"}


def test_a_source_for_a_figure_that_is_not_there_is_an_error() -> None:
    text = '[x]\ntitle="X"\nvendor="v"\nmemory="1Gi"\n[x.sources]\ndefault="d"\nprice="p"\n'
    with pytest.raises(KeyError, match="price"):
        read(text)


def test_an_entry_without_sources_is_an_error() -> None:
    with pytest.raises(KeyError, match="sources"):
        read('[x]\ntitle="X"\nvendor="v"\n')
