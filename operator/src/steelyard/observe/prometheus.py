"""Prometheus' HTTP API: instant queries, answered by a vector or by an error that says why there is none.

An answer holds numbers only: NaN and infinities are left out, so that what is missing is unknown and never zero. Nothing
is repeated here; the next tick asks anew.
"""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock

import urllib3

from steelyard.observe.answers import Keys, Unanswered, Vector, parse, short

ANSWER_LIMIT = 256 * 1024 * 1024  # bytes; a fleet of 20,000 pods answers one query with about 4 MB
CONNECTIONS = 8
ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>:? ?")  # of an object in memory: another one with every attempt


@dataclass(frozen=True)
class Query:
    """One instant query: its PromQL text, and the labels whose values are the keys of its answer."""

    text: str
    labels: tuple[str, ...]


Ask = Callable[[Query], Vector]


@dataclass(frozen=True)
class Access:
    """How to be let in: a bearer token, or a name with a password; whom to trust. Files are read for every query, since
    tokens and passwords rotate."""

    bearer_token_file: Path | None = None
    username: str = ""  # with `password_file`
    password_file: Path | None = None
    ca_file: Path | None = None  # replaces the system's certificate authorities

    def headers(self) -> dict[str, str]:
        """The header that says who asks; raises `Unanswered` where a file cannot be read."""
        if self.bearer_token_file is not None:
            return {"Authorization": f"Bearer {_content('bearerTokenFile', self.bearer_token_file)}"}
        if self.password_file is not None:
            both = f"{self.username}:{_content('passwordFile', self.password_file)}"
            return {"Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}
        return {}


class Prometheus:
    """One server; blocking, safe to share between threads. `timeout_seconds` bounds the wait for one answer.

    Answers are awaited at the same time and read one after the other: what reading takes in memory, it takes once. One that
    breaks off in the middle ends its look, or each of the others might take as long.
    """

    def __init__(self, url: str, access: Access | None = None, timeout_seconds: float = 4) -> None:
        self._url = url.rstrip("/") + "/api/v1/query"
        self._access = access or Access()
        self._timeout = timeout_seconds
        self._reading = Lock()
        authorities = str(self._access.ca_file) if self._access.ca_file is not None else None
        self._pool = urllib3.PoolManager(maxsize=CONNECTIONS, cert_reqs="CERT_REQUIRED", ca_certs=authorities)

    def look(self) -> Ask:
        """Begin a look: a way to ask whose answers share what they can. It is as large as its answers, so drop it soon."""
        return partial(self.ask, keys=Keys())

    def ask(self, query: Query, keys: Keys | None = None) -> Vector:
        """Ask now. Raises `Unanswered`: not reached, refused, no vector, or only a part of the truth."""
        headers, keys = self._access.headers(), keys or Keys()
        if keys.fault:
            raise Unanswered(keys.fault)
        try:
            answer = self._pool.request(
                "POST",
                self._url,
                fields=self._form(query),
                encode_multipart=False,
                headers=headers,
                timeout=urllib3.Timeout(total=self._timeout),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as failure:
            raise Unanswered(self._told(failure)) from failure
        with self._reading:
            if keys.fault:
                answer.close()
                raise Unanswered(keys.fault)
            try:
                data = answer.read(ANSWER_LIMIT + 1)
            except (urllib3.exceptions.HTTPError, OSError) as failure:
                keys.fault = self._told(failure)
                raise Unanswered(keys.fault) from failure
            finally:
                answer.release_conn()
            if len(data) > ANSWER_LIMIT:
                raise Unanswered(f"{self._url} answers with more than {ANSWER_LIMIT} bytes")
            return parse(answer.status, data, query.labels, keys)

    def _told(self, failure: Exception) -> str:
        return short(ADDRESS.sub("", f"{self._url} does not answer: {failure}"))

    def _form(self, query: Query) -> dict[str, str]:
        return {"query": query.text, "timeout": f"{self._timeout:g}s"}


def _content(field: str, file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError) as failure:
        said = failure.strerror if isinstance(failure, OSError) else "is not text"
        raise Unanswered(f"prometheus.{field} {file}: {said}") from failure
