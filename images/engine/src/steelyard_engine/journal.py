"""Logs as single JSON lines on standard error: time, level, logger, message and extra fields. Never a prompt or answer.

Errors are named by type and place alone: the HTTP parser's quote the bytes that it could not read, which are a prompt's
where a client counted its body wrongly. Who knows an error's text to be harmless logs it as a field.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object a record; what was given as `extra` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["traceback"] = _places(record.exc_info[1])
        return json.dumps(line, default=str)


def _places(error: BaseException | None) -> str:
    """Return the tracebacks of an error and of what it came from, latest last, with the types of the errors."""
    parts: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        parts.append("".join(traceback.format_tb(error.__traceback__)) + type(error).__qualname__)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n\n".join(reversed(parts))


def start() -> None:
    """Send all logs of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
