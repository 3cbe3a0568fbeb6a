"""A vLLM plug-in for machines with few cores: engines that have nothing to do sleep instead of spinning.

Two loops of an engine poll as fast as they can, which is right where cores are plenty and takes all of a laptop's:
NIXL's progress thread, and readers of vLLM's queue in shared memory for a second after each message. vLLM calls
`register` in every process of an engine before it builds anything (entry point `vllm.general_plugins`).
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

PROGRESS_MICROSECONDS = 200  # between two looks of NIXL's thread: a transfer over TCP takes milliseconds
NIXL = "nixl_cu12._api"  # the build that the image has


def register() -> None:
    """Change both loops in this process; calling it again changes nothing."""
    _block_on_queues()
    _slow_down_nixl()


def _block_on_queues() -> None:
    condition = import_module("vllm.distributed.device_communicators.shm_broadcast").SpinCondition
    if getattr(condition, "steelyard", False):
        return
    original = condition.__init__

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.busy_loop_s = 0.0

    condition.__init__, condition.steelyard = init, True


def _slow_down_nixl() -> None:
    """The Python layer of NIXL sets the pause of its thread to 0 and offers no setting for it."""
    api: Any = import_module(NIXL)
    if not isinstance(api.nixlBind, _Bindings):
        api.nixlBind = _Bindings(api.nixlBind)


class _Bindings:
    """NIXL's bindings, whose agents get another configuration."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def nixlAgent(self, name: str, config: Any) -> Any:
        """Make an agent that pauses between two looks; the name is the library's."""
        config.pthrDelay = PROGRESS_MICROSECONDS
        return self._real.nixlAgent(name, config)
