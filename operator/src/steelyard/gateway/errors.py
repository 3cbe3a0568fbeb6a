"""Errors in the shape that OpenAI's clients understand, and the exception that carries one."""

import msgspec

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ClientError(Exception):
    """A request cannot be served. `status` is the HTTP status, `param` the field at fault where there is one, and
    `retry_after` the seconds after which trying again makes sense."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after


def error_body(error: ClientError) -> bytes:
    """Render an error as OpenAI does: {"error": {"message", "type", "param", "code"}}."""
    kind = _TYPES.get(error.status) or ("server_error" if error.status >= 500 else "invalid_request_error")
    code = error.code if error.code is not None else str(error.status)
    return msgspec.json.encode({"error": {"message": error.message, "type": kind, "param": error.param, "code": code}})


def error_event(error: ClientError) -> bytes:
    """Render an error as the last event of a stream that had already begun."""
    return b"data: " + error_body(error) + b"\n\n"
