"""The HTTP side: OpenAI's endpoints, probes and metrics on one port, held states on another.

aiohttp serves both: an engine's step costs far more than its HTTP, so the smaller code wins here. A handler is cancelled
when its client goes away, which closes the engine's generator and frees slot and KV at the next step.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.metadata import version

import aiohttp
import msgspec
from aiohttp import web

from .answers import Answer
from .api import Call, Kind, read_call
from .engine import Delta, Engine, Handle, Request
from .errors import ApiError
from .handoff import HandoffFailed, Pulled, TransferParams, new_capability, pull, release, unpack

log = logging.getLogger(__name__)

BODY_LIMIT = 4 * 1024 * 1024  # bytes of a request
_LONG_BODY = 32 * 1024  # bytes from which on tokenizing would hold up the streams of others
# Fields whose grammars take longer to make than a body to read; an escape may hide one.
_FORMS = (b"response_format", b"structured_outputs", b"\\u")
_SLICE = 1024 * 1024  # bytes of state written at once

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Server:
    """What the handlers share: the engine, where decode engines reach its states, and whether it is leaving."""

    engine: Engine
    context_length: int
    advertise_host: str
    kv_port: int
    pull_timeout: float
    session: aiohttp.ClientSession
    draining: bool = False
    id: str = field(default_factory=new_capability)
    started: int = field(default_factory=lambda: int(time.time()))
    _answering: int = 0
    _long_body: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(1)
    )  # read, one takes 20 times its size
    _releases: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def idle(self) -> bool:
        """Say whether every answer is written to its end and every state pulled is released."""
        return self.engine.idle and not self._answering and not self._releases

    def api(self) -> web.Application:
        """Return the application of the API port."""
        app = web.Application(client_max_size=BODY_LIMIT, middlewares=[errors_as_json])
        app.add_routes(
            [
                web.post("/v1/completions", self._completion),
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/live", self._live),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
                # For the gateway, which may not reach the KV port: its client left before decode could fetch the state.
                web.delete("/kv/{id}", self._release_state),
            ]
        )
        return app

    def kv(self) -> web.Application:
        """Return the application of the KV port."""
        app = web.Application(middlewares=[errors_as_json])
        app.add_routes([web.get("/kv/{id}", self._give_state), web.delete("/kv/{id}", self._release_state)])
        return app

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._count(request, "completion")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._count(request, "chat")

    async def _count(self, request: web.Request, kind: Kind) -> web.StreamResponse:
        self._answering += 1
        try:
            return await self._answer(request, kind)
        finally:
            self._answering -= 1

    async def _answer(self, request: web.Request, kind: Kind) -> web.StreamResponse:
        arrival = time.monotonic()
        data = await request.read()
        if self.draining or not self.engine.ready:
            state = "is shutting down" if self.draining else "is not ready"
            raise ApiError(503, f"This engine {state}; send the request to another one.", None, "unavailable")
        options = self.engine.options
        inputs = (kind, data, (options.served_name, *options.adapters), self.context_length, self.engine.backend)
        if len(data) > _LONG_BODY or any(mark in data for mark in _FORMS):
            async with self._long_body:
                call = await asyncio.to_thread(read_call, *inputs)
        else:
            call = read_call(*inputs)
        restored = await self._pull(call) if call.transfer.do_remote_prefill else None
        deltas = self.engine.generate(
            Request(
                prompt=call.prompt,
                max_tokens=call.max_tokens,
                sampling=call.sampling,
                stops=call.stops,
                ignore_eos=call.ignore_eos,
                hold=call.transfer.do_remote_decode,
                arrival=arrival,
                restored=restored,
                adapter=call.adapter,
            )
        )
        async with aclosing(deltas):
            first = await anext(deltas)
            if first.error is not None:
                raise ApiError(500, f"{first.error}; send the request again.", None, "engine_error")
            answer = Answer(call, call.adapter or options.served_name)
            if call.stream:
                return await self._stream(request, answer, first, deltas)
            return await self._whole(answer, first, deltas)

    async def _whole(self, answer: Answer, first: Delta, deltas: AsyncGenerator[Delta]) -> web.Response:
        texts, last = [first.text], first
        async for last in deltas:
            texts.append(last.text)
        if last.error is not None:
            raise ApiError(500, f"{last.error}; send the request again.", None, "engine_error")
        transfer = self._describe(last.handle) if last.handle else None
        return web.Response(body=answer.whole("".join(texts), last, transfer), content_type="application/json")

    async def _stream(
        self, request: web.Request, answer: Answer, first: Delta, deltas: AsyncGenerator[Delta]
    ) -> web.StreamResponse:
        """Send one event for each piece of text; an error in mid-stream is an event without an end mark after it."""
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        last = first
        await response.write(answer.event(first))
        async for last in deltas:
            if last.error is not None:
                error = ApiError(500, f"{last.error}; send the request again.", None, "engine_error")
                await response.write(b"data: " + msgspec.json.encode(error.body()) + b"\n\n")
                return response
            await response.write(answer.event(last))
        await response.write(answer.ending(last))
        return response

    async def _pull(self, call: Call) -> Pulled | None:
        """Fetch and check the prompt's state; None where it must be computed here, ApiError where that is not wanted."""
        engine, params = self.engine, call.transfer
        engine.pulling += 1
        started = time.monotonic()
        try:
            blob = await pull(self.session, params, self.pull_timeout)
            backend = engine.backend
            identity = backend.identity(call.adapter)
            pulled = await asyncio.to_thread(unpack, blob, identity, backend.layout, call.prompt)
            window = engine.options.window
            if window is not None and pulled.tokens - pulled.forgotten >= window.size:
                raise HandoffFailed(f"a state of {pulled.tokens - pulled.forgotten} tokens is larger than the window")
            rest = backend.transfer_seconds(pulled.tokens) - (time.monotonic() - started)
            if rest > 0:
                await asyncio.sleep(rest)
            engine.metrics.bytes_in.inc(backend.state_bytes(pulled.tokens, pulled.state))
            engine.metrics.transfer.observe(time.monotonic() - started)
            return pulled
        except HandoffFailed as error:
            engine.metrics.transfer_failures.inc()
            log.warning("a state could not be pulled", extra={"reason": str(error)})
            if not engine.options.recompute:
                raise ApiError(
                    500, f"KV transfer failed: {error}; send the request again.", None, "kv_transfer"
                ) from error
            return None
        finally:
            engine.pulling -= 1
            task = asyncio.create_task(release(self.session, params))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    def _describe(self, handle: Handle) -> TransferParams:
        return TransferParams(
            do_remote_prefill=True,
            remote_engine_id=self.id,
            remote_request_id=handle.id,
            remote_block_ids=handle.blocks,
            remote_host=self.advertise_host,
            remote_port=self.kv_port,
            remote_num_tokens=handle.tokens,
        )

    async def _give_state(self, request: web.Request) -> web.StreamResponse:
        held = self.engine.held.get(request.match_info["id"])
        if held is None:
            raise ApiError(404, "No such state: it was released, or its lease ended.", None, "kv_unknown")
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.content_length = len(held.header) + len(held.state)
        await response.prepare(request)
        await response.write(held.header)
        for start in range(0, len(held.state), _SLICE):
            await response.write(memoryview(held.state)[start : start + _SLICE])
        await response.write_eof()
        held.fetched = True
        backend = self.engine.backend
        self.engine.metrics.bytes_out.inc(backend.state_bytes(held.tokens, memoryview(held.state)))
        return response

    async def _release_state(self, request: web.Request) -> web.Response:
        self.engine.release(request.match_info["id"])
        return web.Response(status=204)

    async def _models(self, _: web.Request) -> web.Response:
        options = self.engine.options
        model = {"object": "model", "created": self.started, "owned_by": "steelyard"}
        served: list[dict[str, object]] = [
            {"id": options.served_name, **model, "max_model_len": self.context_length},
            *({"id": name, **model, "parent": options.served_name} for name in options.adapters),
        ]
        return _json({"object": "list", "data": served})

    async def _health(self, _: web.Request) -> web.Response:
        if self.draining or not self.engine.ready:
            return _json({"status": "draining" if self.draining else "starting"}, 503)
        return _json({"status": "ready"})

    async def _live(self, _: web.Request) -> web.Response:
        return _json({"status": "live"}) if self.engine.alive else _json({"status": "dead"}, 500)

    async def _version(self, _: web.Request) -> web.Response:
        return _json({"version": version("steelyard-engine"), "layout": self.engine.backend.layout})

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = self.engine.metrics.expose(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give every error OpenAI's shape, aiohttp's own too; say nothing of the inside of unexpected ones."""
    try:
        return await handler(request)
    except ApiError as error:
        return _refusal(error)
    except web.HTTPRequestEntityTooLarge:
        return _refusal(
            ApiError(413, f"The body is larger than {BODY_LIMIT} bytes; shorten the prompt.", None, "too_large")
        )
    except web.HTTPException as error:
        return _refusal(ApiError(error.status, f"{error.reason}: {request.method} {request.path}.", None, None))
    except web.RequestPayloadError:
        return _refusal(ApiError(400, "The body cannot be read: its encoding is not what its header says.", None, None))
    except ConnectionResetError:
        return web.Response(status=499)  # the client is gone: nobody reads this, and it is no error to be logged
    except Exception:
        log.exception("a request failed", extra={"path": request.path})
        return _refusal(ApiError(500, "The engine failed; send the request again.", None, "internal"))


def _refusal(error: ApiError) -> web.Response:
    answer = _json(error.body(), error.status)
    if error.status == 503:
        answer.headers["Retry-After"] = "1"
    return answer


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
