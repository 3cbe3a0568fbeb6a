"""HTTP/1.1 as the gateway writes it: heads, chunks, and the limits of what it reads."""

from functools import lru_cache

from steelyard.gateway.errors import ClientError, error_body

HEAD_SECONDS = 10.0  # from a request's first byte (or the connection's start) to the end of its head
IDLE_SECONDS = 75.0  # of an unused connection
MAX_HEAD = 32 * 1024  # bytes of a request's or response's head
MAX_REPLY = 64 * 1024 * 1024  # bytes of an answer that is not streamed
MAX_PIPELINED = 8  # requests read ahead on one connection
SOCKET_BUFFER = 128 * 1024  # kernel buffer per direction: a stalled stream must not hold megabytes
WRITE_HIGH_WATER = 64 * 1024  # bytes buffered for a slow client before its engine is paused

LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
KEEP_ALIVE_COMMENT = b": waiting\n\n"

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    411: b"Length Required",
    413: b"Content Too Large",
    414: b"URI Too Long",
    417: b"Expectation Failed",
    422: b"Unprocessable Content",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream"


def chunk(data: bytes) -> bytes:
    """Frame bytes as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def full_response(
    status: int,
    body: bytes,
    *,
    content_type: bytes = JSON,
    keep_alive: bool,
    extra: tuple[tuple[bytes, bytes], ...] = (),
) -> bytes:
    """Build a response with a known length."""
    return b"%bcontent-length: %d\r\n\r\n%b" % (_head(status, content_type, keep_alive, extra), len(body), body)


def stream_head(
    *, status: int, content_type: bytes, keep_alive: bool, chunked: bool, extra: tuple[tuple[bytes, bytes], ...]
) -> bytes:
    """Build the head of a response that is streamed: chunked, or ended by closing for HTTP/1.0 clients."""
    framing = b"transfer-encoding: chunked\r\n\r\n" if chunked else b"\r\n"
    return _head(status, content_type, keep_alive, extra) + b"cache-control: no-cache\r\n" + framing


def error_response(error: ClientError, *, keep_alive: bool, extra: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
    """Build the response of an error, with the fields its status calls for."""
    if error.retry_after is not None:
        extra = (*extra, (b"retry-after", b"%d" % error.retry_after))
    if error.status == 401:
        extra = (*extra, (b"www-authenticate", b"Bearer"))
    return full_response(error.status, error_body(error), keep_alive=keep_alive, extra=extra)


def request_bytes(
    target: bytes, host: bytes, body: bytes, request_id: bytes, trace: tuple[tuple[bytes, bytes], ...]
) -> bytes:
    """Build a POST to an engine. The client's credentials and other fields stay here."""
    fields = b"".join([b"%b: %b\r\n" % field for field in trace]) if trace else b""
    start = _request_start(target, host)
    return b"%b%b\r\n%bcontent-length: %d\r\n\r\n%b" % (start, request_id, fields, len(body), body)


@lru_cache(maxsize=1024)  # of few paths and the engines there are
def _request_start(target: bytes, host: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\nx-request-id: " % (target, host)


def _head(status: int, content_type: bytes, keep_alive: bool, extra: tuple[tuple[bytes, bytes], ...]) -> bytes:
    start = _response_start(status, content_type, keep_alive)
    if len(extra) == 1:  # the request's id, and nothing else, as a rule
        return b"%b%b: %b\r\n" % (start, *extra[0])
    return start + b"".join([b"%b: %b\r\n" % field for field in extra])


@lru_cache(maxsize=64)  # of few statuses and types of content
def _response_start(status: int, content_type: bytes, keep_alive: bool) -> bytes:
    connection = b"" if keep_alive else b"connection: close\r\n"
    reason = _REASONS.get(status, b"Status")
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\n%b" % (status, reason, content_type, connection)
