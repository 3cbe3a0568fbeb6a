"""Errors of the API, in OpenAI's shape: what is wrong, with which field, and what to do instead."""

from dataclasses import dataclass

_TYPES = {400: "invalid_request_error", 404: "invalid_request_error", 413: "invalid_request_error"}


@dataclass(eq=False)
class ApiError(Exception):
    """A request that is not served: HTTP status, message with remedy, the field at fault, a code for programs."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None

    def body(self) -> dict[str, object]:
        """Return the JSON of the answer."""
        kind = _TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}
