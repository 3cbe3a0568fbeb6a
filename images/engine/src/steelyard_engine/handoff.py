"""The hand-off of a prefilled prompt: its wire format, the states held for it, and the pull. JSON as vLLM spells it.

The prefill engine exports a prompt's state when it ends and holds it under a lease; the id is an unguessable
capability. The decode engine pulls it over HTTP, checks that it belongs to this very prompt and model, and releases it.
The bytes on the host and the KV blocks they came from are held together, so what may wait is bounded by the KV capacity.

Wire format: `SYKV`, format version (u16), length of the header (u32), both big-endian; the header as JSON; the state.
"""

import secrets
import struct
import zlib
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

import aiohttp
import msgspec
from yarl import URL

from .steps import Sequence as Scheduled

MAGIC = b"SYKV"
FORMAT = 2
_PREFIX = struct.Struct(">4sHI")
_HEADER_LIMIT = 4096  # bytes
_CONNECT_SECONDS = 2.0
_SILENCE_SECONDS = 5.0  # without a byte of a state that lies ready; its request waits meanwhile


class HandoffFailed(Exception):
    """A state could not be pulled or is not the one asked for; the text says which and why."""


class TransferParams(msgspec.Struct, frozen=True):
    """`kv_transfer_params` of a request or an answer."""

    do_remote_decode: bool = False
    do_remote_prefill: bool = False
    remote_engine_id: str | None = None
    remote_request_id: str | None = None
    remote_block_ids: list[int] | None = None
    remote_host: str | None = None
    remote_port: int | None = None
    remote_num_tokens: int | None = None
    tp_size: int = 1


class Header(msgspec.Struct, frozen=True):
    """What a state is of: model, layout of its bytes, number and digest of its tokens, size and CRC-32 of the bytes; how many
    of the tokens were forgotten, so that it has none of theirs.
    """

    model: str
    layout: str
    tokens: int
    digest: str
    bytes: int
    crc: int
    forgotten: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


@dataclass(slots=True)
class Pulled:
    """A checked state: the first `tokens` tokens of the prompt but those `forgotten`, and its bytes until they are taken."""

    tokens: int
    state: memoryview
    forgotten: int = 0

    def take(self) -> memoryview:
        """Give out the bytes and forget them: a request lives much longer than its state is needed."""
        state, self.state = self.state, memoryview(b"")
        return state


@dataclass(slots=True)
class Held:
    """A state of `tokens` tokens, held until `expires` (monotonic seconds); `fetched` once somebody has read all of it."""

    header: bytes
    state: bytes
    tokens: int
    sequence: Scheduled
    expires: float
    fetched: bool = False


def new_capability() -> str:
    """Return an id that nobody can guess."""
    return secrets.token_urlsafe(24)


def pack_header(model: str, layout: str, tokens: Sequence[int], state: bytes, forgotten: int = 0) -> bytes:
    """Return everything that precedes the state on the wire."""
    digest = _digest(tokens, forgotten)
    header = Header(model, layout, len(tokens), digest, len(state), zlib.crc32(state), forgotten)
    text = msgspec.json.encode(header)
    return _PREFIX.pack(MAGIC, FORMAT, len(text)) + text


def unpack(blob: bytes, model: str, layout: str, prompt: Sequence[int]) -> Pulled:
    """Check a pulled blob against this model and prompt; raise HandoffFailed on the first thing that is wrong."""
    if len(blob) < _PREFIX.size:
        raise HandoffFailed(f"{len(blob)} bytes are too few for a state")
    magic, version, size = _PREFIX.unpack_from(blob)
    if magic != MAGIC or version != FORMAT:
        raise HandoffFailed(f"format {magic!r} version {version} is not {MAGIC!r} version {FORMAT}")
    if size > _HEADER_LIMIT:
        raise HandoffFailed(f"a header of {size} bytes is longer than {_HEADER_LIMIT}")
    try:
        header = msgspec.json.decode(blob[_PREFIX.size : _PREFIX.size + size], type=Header)
    except msgspec.DecodeError as error:
        raise HandoffFailed(f"the header cannot be read: {error}") from error
    state = memoryview(blob)[_PREFIX.size + size :]
    if (header.model, header.layout) != (model, layout):
        raise HandoffFailed(f"state of model {header.model} ({header.layout}), this is {model} ({layout})")
    if header.tokens >= len(prompt) or header.digest != _digest(prompt[: header.tokens], header.forgotten):
        raise HandoffFailed(f"state of {header.tokens} tokens is of another prompt than this one of {len(prompt)}")
    if header.bytes != len(state) or header.crc != zlib.crc32(state):
        raise HandoffFailed(f"{len(state)} bytes arrived damaged, {header.bytes} were sent")
    return Pulled(header.tokens, state, header.forgotten)


async def pull(session: aiohttp.ClientSession, params: TransferParams, timeout_seconds: float) -> bytes:
    """Fetch a blob from the prefill engine; raise HandoffFailed, also where it stays silent or is cut off by the network."""
    try:
        url = _url(params)
        limits = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS)
        async with session.get(url, timeout=limits, allow_redirects=False) as answer:
            if answer.status != 200:
                raise HandoffFailed(f"the prefill engine answered {answer.status}: the state is unknown or expired")
            return await answer.read()
    except aiohttp.SocketTimeoutError as error:
        raise HandoffFailed(
            f"{params.remote_host}:{params.remote_port} sent nothing for {_SILENCE_SECONDS:g} s"
        ) from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise HandoffFailed(f"{params.remote_host}:{params.remote_port}: {type(error).__name__}") from error


async def release(session: aiohttp.ClientSession, params: TransferParams) -> None:
    """Tell the prefill engine that the state is no longer needed; if that fails, its lease ends by itself."""
    limits = aiohttp.ClientTimeout(total=2 * _CONNECT_SECONDS)
    with suppress(aiohttp.ClientError, TimeoutError, ValueError):
        async with session.delete(_url(params), timeout=limits, allow_redirects=False):
            pass


def _url(params: TransferParams) -> URL:
    if not params.remote_host or not params.remote_port or not params.remote_request_id:
        raise ValueError("remote_host, remote_port and remote_request_id are needed to pull a state")
    return URL.build(scheme="http", host=params.remote_host, port=params.remote_port) / "kv" / params.remote_request_id


def _digest(tokens: Sequence[int], forgotten: int) -> str:
    """Return a digest of the tokens and of how many of them were forgotten."""
    return blake2b(array("q", [forgotten, *tokens]).tobytes(), digest_size=16).hexdigest()
