"""The engine as its server runs it, without the HTTP around: scheduler, worker thread, sampling, text, deltas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from steelyard_engine.engine import Engine, Request
from steelyard_engine.sampling import Sampling
from steelyard_engine.settings import make_backend, read_arguments

from e2e.errors import ToolError

Prompt = Sequence[int]
_LOAD_SECONDS = 120.0


@asynccontextmanager
async def served(model: Path, numerics: str) -> AsyncIterator[Served]:
    """The engine with these numerics and else the defaults of its command line, loaded and warm."""
    command = ["--backend", "llama", "--served-name", "bench", "--model", str(model), "--numerics", numerics]
    settings = read_arguments(command)
    engine = Engine(make_backend(settings), settings.options)
    engine.start()
    try:
        async with asyncio.timeout(_LOAD_SECONDS):
            while engine.loading:  # noqa: ASYNC110 (the worker thread's state)
                await asyncio.sleep(0.05)
        if engine.failure:
            raise ToolError(f"the engine cannot load {model}: {engine.failure}")
        yield Served(engine)
    finally:
        await engine.stop()


class Served:
    """What the benchmark asks of a loaded engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def prefill(self, prompts: Sequence[Prompt]) -> float:
        """Compute all prompts and one token after each; give the CPU-seconds."""
        began = time.process_time()
        await self._all(prompts, 1)
        return time.process_time() - began

    async def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        """Compute `steps` further tokens of each sequence; give the CPU-seconds since all of them have their first.

        All prompts must fit into one step of the scheduler, so that the sequences start together.
        """
        began = await self._all(prompts, steps + 1)
        return time.process_time() - began

    async def _all(self, prompts: Sequence[Prompt], tokens: int) -> float:
        """Serve all prompts at once; give the process's CPU time when the last of them had its first token."""
        moments = await asyncio.gather(*(self._one(prompt, tokens) for prompt in prompts))
        return max(moments)

    async def _one(self, prompt: Prompt, tokens: int) -> float:
        request = Request(
            prompt=tuple(prompt), max_tokens=tokens, sampling=Sampling(temperature=0.0), stops=(), ignore_eos=True,
            hold=False, arrival=time.monotonic(),
        )  # fmt: skip
        first, generated = 0.0, 0
        async for delta in self.engine.generate(request):
            if not generated:
                first = time.process_time()
            generated = delta.generated
            if delta.error:
                raise ToolError(f"the engine failed: {delta.error}")
        if generated != tokens:
            raise ToolError(f"the engine gave {generated} tokens of {tokens}")
        return first
