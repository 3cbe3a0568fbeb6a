"""The three paths clients may use, and what a request must satisfy before it is queued.

Everything else is answered here: unknown paths (matched byte for byte, so that no spelling slips past the key), wrong
methods, missing keys, bodies that cannot be right, an unknown model, too many requests at once.
"""

import os
from itertools import count

import msgspec

from steelyard.decide.queue.judge import Met, Outcome, length_class
from steelyard.gateway.bodies import CHAT, COMPLETIONS, read_body
from steelyard.gateway.connections import Connections
from steelyard.gateway.errors import ClientError
from steelyard.gateway.exchange import Exchange
from steelyard.gateway.keys import ApiKeys
from steelyard.gateway.request import Request
from steelyard.gateway.router import Router
from steelyard.gateway.server import Answering, Client
from steelyard.gateway.settings import Settings
from steelyard.gateway.wire import error_response, full_response

MODELS = b"/v1/models"
_METHOD = {CHAT: b"POST", COMPLETIONS: b"POST", MODELS: b"GET"}
_SPARE_CONNECTIONS = 1000  # open connections allowed beyond twice the concurrency limit
_DESCRIPTOR_SHARE = 2  # of this process's descriptors clients may hold one half; engines' connections need as many


class FrontDoor:
    """What every client connection is served by."""

    def __init__(self, router: Router, keys: ApiKeys | None, started: int, descriptors: int) -> None:
        """`keys` None leaves the service open; `started` is the unix time shown as the model's creation; `descriptors`
        are those that this process may have."""
        self.router = router
        self.now = router.now  # seconds on the loop's clock
        self.holding = router.holding
        self.keys = keys
        self.connections: Connections[Client] = Connections(self._most_connections)
        self.draining = False
        self.apply(router.settings)
        self._started = started
        self._descriptors = descriptors
        self._serial = count(1)
        self._id_prefix = os.urandom(6).hex().encode() + b"-"

    def apply(self, settings: Settings) -> None:
        """Take over settings; requests that were taken under the old ones go on."""
        self._settings = settings
        self.body_limit = settings.limits.body_bytes

    def serve(self, client: Client, request: Request) -> Answering | None:
        """Answer a request, at once (None) or by an exchange."""
        serial = next(self._serial)
        request_id = request.request_id or self._id_prefix + b"%x" % serial
        extra = ((b"x-request-id", request_id),)
        try:
            self._check(request)
            if request.path == MODELS:
                client.respond(full_response(200, self._models(), keep_alive=client.keep_alive(), extra=extra))
                return None
            exchange = self._exchange(client, request, serial, request_id)
        except ClientError as error:
            if request.path in (CHAT, COMPLETIONS) and error.status not in (401, 405):
                self._count(error)
            client.respond(_with_allow(error, request, client.keep_alive(), extra))
            return None
        self.router.admit(exchange)
        return exchange

    def refused_early(self, error: ClientError) -> None:
        """Count a request that was refused before it was whole."""
        self._count(error)

    def _most_connections(self) -> int:
        return min(2 * self._settings.limits.concurrent + _SPARE_CONNECTIONS, self._descriptors // _DESCRIPTOR_SHARE)

    def _check(self, request: Request) -> None:
        method = _METHOD.get(request.path)
        if method is None:
            raise ClientError(
                404, "no such path; this service answers /v1/chat/completions, /v1/completions, /v1/models"
            )
        if self.keys is not None and not self.keys.open(request.authorization):
            raise ClientError(401, "a valid API key is needed: Authorization: Bearer <key>", code="invalid_api_key")
        if request.method != method:
            raise ClientError(405, f"{request.path.decode()} takes {method.decode()}")
        if method == b"POST" and request.length is None:
            raise ClientError(411, "the body needs a Content-Length or Transfer-Encoding: chunked")

    def _exchange(self, client: Client, request: Request, serial: int, request_id: bytes) -> Exchange:
        settings = self._settings
        body = read_body(request.path, request.body)
        if body.model != settings.served_name and body.model not in settings.adapters:
            served = ", ".join(map(repr, (settings.served_name, *settings.adapters)))
            raise ClientError(
                404,
                f"the model {body.model[:200]!r} does not exist; this service serves {served}",
                param="model",
                code="model_not_found",
            )
        if len(self.router.exchanges) >= settings.limits.concurrent:
            raise ClientError(
                429, f"{settings.limits.concurrent} requests are being served; try again later", retry_after=1
            )
        self.holding.check_waiting(request.size)
        request.body = b""  # its fields are held by the exchange from here on
        return Exchange(self.router, client, request, body, serial, request_id)

    def _count(self, error: ClientError) -> None:
        metrics = self.router.metrics
        metrics.arrived += 1
        refused = error.status in (429, 503)
        outcome, met = (Outcome.REFUSED, Met.FALSE) if refused else (Outcome.INVALID, Met.NONE)
        metrics.judged(outcome, met, met, length_class(0))

    def _models(self) -> bytes:
        settings = self._settings
        models = [
            {
                "id": name,
                "object": "model",
                "created": self._started,
                "owned_by": "steelyard",
                "max_model_len": settings.context_length,
                **({"parent": settings.served_name} if name != settings.served_name else {}),
            }
            for name in (settings.served_name, *settings.adapters)
        ]
        return msgspec.json.encode({"object": "list", "data": models})


def _with_allow(
    error: ClientError, request: Request, keep_alive: bool, extra: tuple[tuple[bytes, bytes], ...]
) -> bytes:
    if error.status == 405:
        extra = (*extra, (b"allow", _METHOD[request.path]))
    return error_response(error, keep_alive=keep_alive, extra=extra)
