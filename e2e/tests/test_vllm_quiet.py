"""The plug-in of the image with vLLM: readers of its queue look often enough by themselves, and NIXL's thread pauses."""

from __future__ import annotations

import importlib.util
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from e2e.cache import REPOSITORY

QUEUES = "vllm.distributed.device_communicators.shm_broadcast"
PLUGIN = REPOSITORY / "images" / "vllm" / "src" / "steelyard_quiet.py"


class SpinCondition:
    """As vLLM 0.32's: it spins for `busy_loop_s` after a message, and else waits to be woken, at most as long as it is told."""

    def __init__(self, last_read: float) -> None:
        self.last_read = last_read
        self.busy_loop_s = 1.0
        self.waited: list[int | None] = []

    def wait(self, timeout_ms: int | None = None) -> None:
        assert self.busy_loop_s == 0, "it spins"
        self.waited.append(timeout_ms)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process of an engine with the plug-in registered, twice, as vLLM may do."""
    spec = importlib.util.spec_from_file_location("steelyard_quiet", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    condition = type("SpinCondition", (SpinCondition,), {})
    nixl = SimpleNamespace(nixlAgent=lambda name, config: (name, config), other=1)
    for name, content in ((QUEUES, {"SpinCondition": condition}), (plugin.NIXL, {"nixlBind": nixl})):
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    plugin.register()
    plugin.register()
    return SimpleNamespace(condition=condition, nixl=sys.modules[plugin.NIXL], plugin=plugin)


@pytest.mark.parametrize(
    ("age", "told", "looks"),
    [
        (-3600.0, 5000, "LOOK_MILLISECONDS"),
        (-3600.0, None, "LOOK_MILLISECONDS"),
        (3600.0, 5000, "IDLE_LOOK_MILLISECONDS"),
        (3600.0, None, "IDLE_LOOK_MILLISECONDS"),
    ],
)
def test_a_reader_looks_by_itself_and_never_spins(engine: Any, age: float, told: int | None, looks: str) -> None:
    """A wake-up that gets lost costs a look's interval, not the five seconds after which vLLM looks again.

    Age is the last message's, in seconds; one from the future stays recent on a busy machine.
    """
    reader = engine.condition(time.monotonic() - age)
    reader.wait(told)
    assert reader.waited == [getattr(engine.plugin, looks)]


def test_a_shorter_wait_stays_what_it_is(engine: Any) -> None:
    reader = engine.condition(time.monotonic() - 3600)
    reader.wait(7)
    assert reader.waited == [7]


def test_nixl_gets_a_pause_and_is_else_itself(engine: Any) -> None:
    name, config = engine.nixl.nixlBind.nixlAgent("a", SimpleNamespace(pthrDelay=0))
    assert (name, config.pthrDelay) == ("a", engine.plugin.PROGRESS_MICROSECONDS)
    assert engine.nixl.nixlBind.other == 1
