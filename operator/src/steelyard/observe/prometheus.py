"""Prometheus' HTTP API: instant queries, answered by a vector or by an error that says why there is none.

An answer holds numbers only: NaN and infinities are left out, so that what is missing is unknown and never zero. Nothing
is repeated here; the next tick asks anew.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from pydantic_core import from_json

Vector = Mapping[tuple[str, ...], float]
"""Values by the labels that the query groups by, in its order."""

ANSWER_LIMIT = 256 * 1024 * 1024  # bytes; a fleet of 20,000 pods answers one query with about 4 MB
CONNECTIONS = 8
WORDS_LIMIT = 300
ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>:? ?")  # of an object in memory: another one with every attempt


class Unanswered(Exception):
    """A query has no answer that can be used; the message says why in one line."""


@dataclass(frozen=True)
class Query:
    """One instant query: its PromQL text, and the labels whose values are the keys of its answer."""

    text: str
    labels: tuple[str, ...]


class Prometheus:
    """One server; blocking, safe to share between threads.

    `bearer_token_file` is read for every query, since tokens rotate. `ca_file` replaces the system's certificate
    authorities. `timeout_seconds` bounds the wait for one answer.
    """

    def __init__(
        self,
        url: str,
        bearer_token_file: Path | None = None,
        ca_file: Path | None = None,
        timeout_seconds: float = 4,
    ) -> None:
        self._url = url.rstrip("/") + "/api/v1/query"
        self._token_file = bearer_token_file
        self._timeout = timeout_seconds
        authorities = str(ca_file) if ca_file is not None else None
        self._pool = urllib3.PoolManager(maxsize=CONNECTIONS, cert_reqs="CERT_REQUIRED", ca_certs=authorities)

    def ask(self, query: Query) -> Vector:
        """Ask now. Raises `Unanswered`: not reached, refused, no vector, or only a part of the truth."""
        try:
            answer = self._pool.request(
                "POST",
                self._url,
                fields=self._form(query),
                encode_multipart=False,
                headers=self._headers(),
                timeout=urllib3.Timeout(total=self._timeout),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                data = answer.read(ANSWER_LIMIT + 1)
            finally:
                answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as failure:
            raise Unanswered(_short(f"{self._url} does not answer: {failure}")) from failure
        if len(data) > ANSWER_LIMIT:
            raise Unanswered(f"{self._url} answers with more than {ANSWER_LIMIT} bytes")
        return parse(answer.status, data, query.labels)

    def _form(self, query: Query) -> dict[str, str]:
        return {"query": query.text, "timeout": f"{self._timeout:g}s"}

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            token = self._token_file.read_text().strip()
        except OSError as failure:
            raise Unanswered(f"prometheus.bearerTokenFile {self._token_file}: {failure.strerror}") from failure
        return {"Authorization": f"Bearer {token}"}


def parse(status: int, data: bytes, labels: tuple[str, ...]) -> Vector:
    """Read an answer of the query API, keyed by `labels`; a row that is no finite number is left out.

    Raises `Unanswered` for an error, for another kind of result than a vector, for warnings (stores that did not answer
    leave only a part of the truth), for a row that lacks a label, and for two rows of one key: taking either would be a
    guess.
    """
    try:
        body = from_json(data)
    except ValueError:
        raise Unanswered(_short(f"HTTP {status} without JSON: {data[:100].decode(errors='replace')!r}")) from None
    if not isinstance(body, dict) or body.get("status") != "success":
        said = body.get("error") if isinstance(body, dict) else None
        raise Unanswered(_short(f"HTTP {status}: {said or 'no success'}"))
    if body.get("warnings"):
        raise Unanswered(_short(f"only a part of the answer: {'; '.join(map(str, body['warnings']))}"))
    return _rows(body.get("data"), labels)


def _rows(result: Any, labels: tuple[str, ...]) -> Vector:
    found: dict[tuple[str, ...], float] = {}
    seen: set[tuple[str, ...]] = set()
    try:
        if result["resultType"] != "vector":
            raise Unanswered(f"a {result['resultType']} where a vector was asked for")
        for row in result["result"]:
            metric = row["metric"]
            key = tuple([metric[label] for label in labels])
            value = float(row["value"][1])
            if key in seen:
                raise Unanswered(f"two rows for {dict(zip(labels, key, strict=True))} where one was asked for")
            seen.add(key)
            if math.isfinite(value):
                found[key] = value
    except (KeyError, TypeError, IndexError, ValueError) as failure:
        raise Unanswered(f"a row of another form than the query's: {failure!r}") from failure
    return found


def _short(text: str) -> str:
    line = ADDRESS.sub("", " ".join(text.split()))
    return line if len(line) <= WORDS_LIMIT else line[: WORDS_LIMIT - 1] + "…"
