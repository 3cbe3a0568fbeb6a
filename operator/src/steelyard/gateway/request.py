"""A client's request as the parser finds it: the few things of its head that matter here, and its body."""

import re

_SAFE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class Request:
    """One request, read whole. What it does not say stays as it is in the class."""

    method = target = path = body = b""
    keep_alive = http11 = True
    expect = False
    length: int | None = None  # of the body; -1 where it is chunked, None where there is none
    request_id: bytes | None = None
    authorization: bytes | None = None
    trace: tuple[tuple[bytes, bytes], ...] = ()
    size = 0

    def __init__(self) -> None:
        self.parts: list[bytes] = []


def _note_length(rx: Request, name: bytes, value: bytes) -> None:
    rx.length = int(value) if value.isdigit() else None


def _note_chunked(rx: Request, name: bytes, value: bytes) -> None:
    rx.length = -1


def _note_authorization(rx: Request, name: bytes, value: bytes) -> None:
    rx.authorization = value


def _note_id(rx: Request, name: bytes, value: bytes) -> None:
    rx.request_id = value if _SAFE_ID.fullmatch(value) else None


def _note_expect(rx: Request, name: bytes, value: bytes) -> None:
    rx.expect = value.lower() == b"100-continue"


def _note_trace(rx: Request, name: bytes, value: bytes) -> None:
    if len(value) <= 512:
        rx.trace += ((name, value),)


NOTED = {  # the few header fields that matter here; names in lower case
    b"content-length": _note_length,
    b"transfer-encoding": _note_chunked,
    b"authorization": _note_authorization,
    b"x-request-id": _note_id,
    b"expect": _note_expect,
    b"traceparent": _note_trace,
    b"tracestate": _note_trace,
}
