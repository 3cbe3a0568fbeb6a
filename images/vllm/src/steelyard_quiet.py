"""A vLLM plug-in for machines with few cores: engines that have nothing to do sleep instead of spinning.

Two loops of an engine poll as fast as they can, which is right where cores are plenty and takes all of a laptop's:
NIXL's progress thread, and readers of vLLM's queue in shared memory for a second after each message. vLLM calls
`register` in every process of an engine before it builds anything (entry point `vllm.general_plugins`).

Readers that only wait to be woken would be wrong as well: a wake-up gets lost on a busy machine now and then, and vLLM looks
again after five seconds, which was five seconds a token. So they look at short intervals by themselves.
"""

from __future__ import annotations

import functools
import time
from importlib import import_module
from typing import Any

PROGRESS_MICROSECONDS = 200  # between two looks of NIXL's thread: a transfer over TCP takes milliseconds
RECENT_SECONDS = 1.0  # after a message; the next one is near
LOOK_MILLISECONDS, IDLE_LOOK_MILLISECONDS = 2, 50  # between two looks at the queue, then and later
NIXL = "nixl_cu12._api"  # the build that the image has


def register() -> None:
    """Change both loops in this process; calling it again changes nothing."""
    _doze_at_queues()
    _slow_down_nixl()


def _doze_at_queues() -> None:
    condition = import_module("vllm.distributed.device_communicators.shm_broadcast").SpinCondition
    if getattr(condition, "steelyard", False):
        return
    original = condition.wait

    @functools.wraps(original)
    def wait(self: Any, timeout_ms: int | None = None) -> None:
        self.busy_loop_s = 0.0  # sleep at once, until woken or until the next look
        recent = time.monotonic() < self.last_read + RECENT_SECONDS
        look = LOOK_MILLISECONDS if recent else IDLE_LOOK_MILLISECONDS
        original(self, look if timeout_ms is None else min(look, timeout_ms))

    condition.wait, condition.steelyard = wait, True


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
