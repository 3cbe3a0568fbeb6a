"""What a hand-off costs, step by step, with the engine's own code: serialize, move over loopback, restore."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
from aiohttp import web
from steelyard_engine.backends.llama import LlamaBackend
from steelyard_engine.engine import Engine
from steelyard_engine.handoff import Held, TransferParams, new_capability, pack_header, pull, unpack
from steelyard_engine.sampling import Sampling
from steelyard_engine.serve import Server
from steelyard_engine.settings import Settings, make_backend, read_arguments
from steelyard_engine.steps import Chunk, Free, Sequence

from bench.engine.seen import TOKENS, Handoff
from bench.engine.turns import FIRST_TOKEN, LAST_TOKEN

_PIECE = 512  # tokens of one step
_LEASE_SECONDS = 600.0
T = TypeVar("T")


async def handoffs(model: Path, count: int) -> list[Handoff]:
    """Hand prompts from one backend to another of this process, through the KV server and the puller of the engine."""
    settings = read_arguments(["--backend", "llama", "--served-name", "bench", "--model", str(model)])
    sender, receiver = _loaded(settings), _loaded(settings)
    engine = Engine(sender, settings.options)  # never started: only what it holds is served
    async with aiohttp.ClientSession() as session:
        server = Server(engine, settings.context_length, "127.0.0.1", 0, settings.options.lease_seconds, session)
        runner = web.AppRunner(server.kv(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = int(runner.addresses[0][1])
        try:
            chance = random.Random(5)
            prompts = [[chance.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(TOKENS + 1)] for _ in range(count + 1)]
            found = [await _one(engine, sender, receiver, session, port, prompt) for prompt in prompts]
        finally:
            await runner.cleanup()
    sender.close()
    receiver.close()
    return found[1:]  # the first one made the connection and warmed the code


async def _one(
    engine: Engine,
    sender: LlamaBackend,
    receiver: LlamaBackend,
    session: aiohttp.ClientSession,
    port: int,
    prompt: list[int],
) -> Handoff:
    sequence = Sequence(1, tuple(prompt), 1, 0.0)
    sequence.slot = 0
    compute, _ = _timed(lambda: _prefill(sender, sequence))
    tokens = prompt[:TOKENS]
    serialize, (header, state) = _timed(lambda: _packed(sender, tokens))
    capability = new_capability()
    engine.held[capability] = Held(header, state, TOKENS, sequence, time.monotonic() + _LEASE_SECONDS)
    params = TransferParams(remote_host="127.0.0.1", remote_port=port, remote_request_id=capability)
    before = time.process_time()
    blob = await pull(session, params, _LEASE_SECONDS)
    move = time.process_time() - before
    restore, _ = _timed(lambda: _restored(receiver, blob, prompt))
    del engine.held[capability]
    for backend in (sender, receiver):
        backend.apply(Free(0))
    return Handoff(len(blob), serialize, move, restore, compute)


def _loaded(settings: Settings) -> LlamaBackend:
    backend = make_backend(settings)
    assert isinstance(backend, LlamaBackend)
    backend.load()
    return backend


def _prefill(backend: LlamaBackend, sequence: Sequence) -> None:
    for start in range(0, TOKENS, _PIECE):
        chunk = Chunk(sequence, start, min(start + _PIECE, TOKENS), start + _PIECE >= TOKENS)
        backend.run([chunk], {sequence.id: Sampling(temperature=0.0)}, 0.0)


def _packed(backend: LlamaBackend, tokens: list[int]) -> tuple[bytes, bytes]:
    state = backend.export_state(0, TOKENS)
    return pack_header(backend.model_id, backend.layout, tokens, state), state


def _restored(backend: LlamaBackend, blob: bytes, prompt: list[int]) -> None:
    pulled = unpack(blob, backend.model_id, backend.layout, prompt)
    backend.import_state(0, pulled.tokens, pulled.take())


def _timed(do: Callable[[], T]) -> tuple[float, T]:
    before = time.process_time()
    made = do()
    return time.process_time() - before, made
