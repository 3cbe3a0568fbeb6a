"""Runs inside an engine's container before SIGTERM: waits until nothing runs or waits, and prefilled state was fetched.

The pod is out of the gateways' reach already (it is being deleted), so its load only falls. Standard library only: it is
mounted from the ConfigMap into images that are not ours.

    python3 drain.py --port 8000 [--path PATH] --lease SECONDS --timeout SECONDS --gauge NAME --gauge NAME

What cannot be read says nothing about the load, so it counts as load: an error, a page without one of the gauges.
"""

import argparse
import http.client
import re
import sys
import time
import urllib.request

PAUSE_SECONDS = 1.0
QUIET_LOOKS = 2  # one empty look may fall between two requests


def load(text: str, names: list[str]) -> float | None:
    """Sum the gauges of those names over all label sets of a metrics page; None where one of them is not on it.

    Raises ValueError for a gauge that has no number.
    """
    found: dict[str, float | None] = dict.fromkeys(names)
    for line in text.splitlines():
        match = re.match(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+(\S+)", line)
        if match and match[1] in names:
            found[match[1]] = (found[match[1]] or 0.0) + float(match[2])
    numbers = [number for number in found.values() if number is not None]
    return sum(numbers) if len(numbers) == len(found) else None


def main() -> int:
    """Wait; returns 0 once quiet and the lease is over, 1 when the time is up, 0 where the engine answers no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/metrics", help="where the engine shows its gauges")
    parser.add_argument("--lease", type=float, required=True, help="seconds that state may wait to be fetched")
    parser.add_argument("--timeout", type=float, required=True, help="seconds after which to give up")
    parser.add_argument("--gauge", action="append", required=True, help="a gauge of running or waiting requests")
    options = parser.parse_args()
    began = time.monotonic()
    quiet, since = 0, began
    page = f"http://127.0.0.1:{options.port}{options.path}"
    while time.monotonic() - began < options.timeout:
        time.sleep(PAUSE_SECONDS)
        try:
            with urllib.request.urlopen(page, timeout=5) as answer:
                busy = load(answer.read().decode(), options.gauge) != 0  # None and NaN are not 0
        except OSError as failure:
            if isinstance(getattr(failure, "reason", failure), ConnectionRefusedError):
                return 0  # nobody listens any more
            busy = True  # too busy to answer
        except (http.client.HTTPException, ValueError):
            busy = True  # half an answer, or none of numbers
        if busy:
            quiet, since = 0, time.monotonic()
            continue
        quiet += 1
        if quiet >= QUIET_LOOKS and time.monotonic() - since >= options.lease:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
