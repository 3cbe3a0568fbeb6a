"""Client authentication by API keys: one key a line, compared in constant time, re-read when the file changes."""

from hashlib import sha256
from hmac import compare_digest

BEARER = b"bearer "


class ApiKeys:
    """The keys that open the service. Only digests are held; several at once make a rotation without a gap possible."""

    def __init__(self, text: bytes) -> None:
        lines = (line.strip() for line in text.splitlines())
        self._digests = tuple(sha256(line).digest() for line in lines if line and not line.startswith(b"#"))

    def __len__(self) -> int:
        return len(self._digests)

    def open(self, authorization: bytes | None) -> bool:
        """Say whether an Authorization header carries one of the keys. All keys are compared, whichever matches."""
        if authorization is None or authorization[: len(BEARER)].lower() != BEARER:
            return False
        given = sha256(authorization[len(BEARER) :].strip()).digest()
        matches = [compare_digest(given, digest) for digest in self._digests]
        return any(matches)
