"""The command line: flags become checked `Settings`, and a backend. A wrong flag ends the start with its remedy."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from .backends import Backend
from .backends.simulated import Oracle, SimulatedBackend
from .engine import Options
from .guesses import Guesser, Lookup, Speculation
from .kv import BLOCK, blocks_for
from .profile import read_profile
from .steps import Batching, Window

_PREFIX_SLOTS = 3  # slots for reusable prefixes, for each running sequence
_SIMULATED_SLOTS = 4096


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the command line says; sizes in tokens, times in seconds."""

    backend: str
    model: Path | None
    profile: Path | None
    port: int
    kv_port: int
    advertise_host: str
    context_length: int
    kv_tokens: int | None
    drain_timeout: float
    threads: int
    numerics: Literal["reproducible", "fast"]
    kv_type: Literal["f16", "q8_0", "q4_0"]
    lora: Mapping[str, Path]
    guesses: int
    lookup: int
    draft_model: Path | None
    options: Options


def read_arguments(arguments: Sequence[str] | None = None) -> Settings:
    """Read and check the command line; exit with status 2 and the reason where it is wrong."""
    parser = argparse.ArgumentParser(prog="steelyard-engine", description="OpenAI-compatible engine with KV hand-off")
    flag = parser.add_argument
    flag("--backend", choices=("llama", "simulated"), required=True, help="llama computes, simulated keeps time")
    flag("--served-name", required=True, help="name of the model in requests and metrics")
    flag("--model", type=Path, help="GGUF file, or a folder with one (llama)")
    flag("--profile", type=Path, help="JSON file of times (simulated)")
    flag("--port", type=int, default=8000, help="port of the API and /metrics; default %(default)s")
    flag("--kv-port", type=int, default=5600, help="port where decode engines fetch KV; default %(default)s")
    flag("--advertise-host", default=os.environ.get("POD_IP", "127.0.0.1"), help="where decode engines find this one")
    flag(
        "--context-length",
        type=_positive,
        default=2048,
        help="tokens of a request, prompt and answer; default %(default)s",
    )
    flag("--max-sequences", type=_positive, default=8, help="sequences that run at once; default %(default)s")
    flag("--max-batch-tokens", type=_positive, default=512, help="token budget of a step; default %(default)s")
    flag("--kv-tokens", type=_positive, help="KV capacity in tokens (default: sequences × context; the profile's)")
    flag(
        "--batching",
        choices=get_args(Batching),
        default="chunked",
        help="how requests share steps; default %(default)s",
    )
    flag("--max-wait", type=float, default=0.05, help="seconds that a dynamic batch waits to fill; default %(default)s")
    flag(
        "--on-kv-failure",
        choices=("recompute", "fail"),
        default="recompute",
        help="KV that cannot be had; default %(default)s",
    )
    flag(
        "--kv-lease",
        type=float,
        default=30.0,
        help="seconds that a prefilled state is kept to be fetched; default %(default)s",
    )
    flag(
        "--drain-timeout",
        type=float,
        default=60.0,
        help="seconds for running requests after SIGTERM; default %(default)s",
    )
    flag("--threads", type=_positive, default=1, help="of computation (llama); default %(default)s")
    flag(
        "--numerics",
        choices=("reproducible", "fast"),
        default="reproducible",
        help="reproducible: a text does not depend on load; fast: llama.cpp's own batches (llama); default %(default)s",
    )
    flag(
        "--kv-type",
        choices=("f16", "q8_0", "q4_0"),
        default="f16",
        help="numbers of the KV cache: 16, 8.5 or 4.5 bits each (llama); default %(default)s",
    )
    flag(
        "--lora",
        type=_named_path,
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="serve a LoRA adapter (GGUF) under this name; may be repeated",
    )
    flag(
        "--speculation",
        choices=get_args(Speculation),
        default="none",
        help="guess next tokens from the text before (ngram) or with a small model (draft); default %(default)s",
    )
    flag("--guesses", type=_positive, default=3, help="tokens guessed a step; default %(default)s")
    flag("--lookup", type=_positive, default=4, help="longest run that ngram looks for, in tokens; default %(default)s")
    flag("--draft-model", type=Path, help="GGUF file of the small model, of the same vocabulary (draft)")
    flag("--sink", type=_positive, default=4, help="first tokens that a window keeps; default %(default)s")
    flag(
        "--recent",
        type=_positive,
        help="keep the KV of so many of a sequence's latest tokens only, beside its first (StreamingLLM); default: all",
    )
    found = parser.parse_args(arguments)
    if found.backend == "llama" and found.model is None:
        parser.error("--backend llama needs --model with a GGUF file")
    if found.backend == "simulated" and found.profile is None:
        parser.error("--backend simulated needs --profile with a JSON file")
    if found.backend == "llama" and (found.speculation == "draft") != (found.draft_model is not None):
        parser.error("--speculation draft and --draft-model belong together; give both or neither")
    names = [found.served_name, *(name for name, _ in found.lora)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        parser.error(f"--lora {twice}: the name is taken; give every adapter its own")
    if found.recent is not None and found.recent < 2 * BLOCK:
        parser.error(f"--recent {found.recent} is too short a window; give at least {2 * BLOCK} tokens")
    options = Options(
        served_name=found.served_name,
        max_sequences=found.max_sequences,
        max_batch_tokens=found.max_batch_tokens,
        batching=found.batching,
        max_wait=found.max_wait,
        recompute=found.on_kv_failure == "recompute",
        lease_seconds=found.kv_lease,
        adapters=tuple(name for name, _ in found.lora),
        speculation=found.speculation,
        window=None if found.recent is None else Window(found.sink, found.recent),
    )
    return Settings(
        backend=found.backend,
        model=found.model,
        profile=found.profile,
        port=found.port,
        kv_port=found.kv_port,
        advertise_host=found.advertise_host,
        context_length=found.context_length,
        kv_tokens=found.kv_tokens,
        drain_timeout=found.drain_timeout,
        threads=found.threads,
        numerics=found.numerics,
        kv_type=found.kv_type,
        lora=dict(found.lora),
        guesses=found.guesses,
        lookup=found.lookup,
        draft_model=found.draft_model,
        options=options,
    )


def make_backend(settings: Settings) -> Backend:
    """Return the backend that the settings ask for, not yet loaded; raise ValueError where they cannot work."""
    sequences = settings.options.max_sequences
    backend: Backend
    if settings.profile is not None and settings.backend == "simulated":
        profile = read_profile(settings.profile)
        backend = SimulatedBackend(
            profile, settings.options.served_name, settings.kv_tokens, _SIMULATED_SLOTS + sequences
        )
    else:
        from .backends.llama import LlamaBackend  # the library is not needed, nor installed, for simulation

        assert settings.model is not None
        backend = LlamaBackend(
            model=settings.model,
            context_length=settings.context_length,
            kv_tokens=settings.kv_tokens or sequences * blocks_for(settings.context_length) * BLOCK,
            slots=sequences * (1 + _PREFIX_SLOTS),
            batch_tokens=max(settings.options.max_batch_tokens, settings.context_length),
            threads=settings.threads,
            numerics=settings.numerics,
            kv_type=settings.kv_type,
            lora=settings.lora,
            window=settings.options.window,
        )
    window = settings.options.window
    kept = settings.context_length if window is None else min(settings.context_length, window.size)
    told = f"--context-length {settings.context_length}" if window is None else f"a window of {kept} tokens"
    if blocks_for(kept) > backend.kv_tokens // BLOCK:
        raise ValueError(
            f"{told} does not fit the KV capacity of {backend.kv_tokens} tokens: raise --kv-tokens or lower it"
        )
    return backend


def make_guesser(settings: Settings, backend: Backend) -> Callable[[], Guesser] | None:
    """Return what makes the guesser that the settings ask for, once `backend` is loaded; None: nothing guesses.

    The maker raises ValueError where the small model does not fit.
    """
    if settings.options.speculation == "none":
        return None
    if isinstance(backend, SimulatedBackend):
        return lambda: Oracle(settings.guesses, backend.acceptance)
    if settings.options.speculation == "ngram":
        return lambda: Lookup(settings.guesses, settings.lookup)
    return lambda: _draft(settings, backend)


def _draft(settings: Settings, backend: Backend) -> Guesser:
    from .backends.draft import Draft
    from .backends.llama import LlamaBackend

    assert settings.draft_model is not None
    batch = max(settings.options.max_batch_tokens, settings.options.max_sequences)
    small = LlamaBackend(
        model=settings.draft_model,
        context_length=settings.context_length,
        kv_tokens=backend.kv_tokens,
        slots=settings.options.max_sequences,
        batch_tokens=batch,
        threads=settings.threads,
        numerics="fast",
    )
    small.load()
    if small.vocabulary != backend.vocabulary:
        raise ValueError(
            f"--draft-model {settings.draft_model}: its vocabulary has {small.vocabulary} tokens and the model's "
            f"{backend.vocabulary}; guesses need the same one"
        )
    return Draft(small, settings.guesses, batch)


def _named_path(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, Path(path)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value
