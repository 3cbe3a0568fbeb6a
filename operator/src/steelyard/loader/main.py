"""`steelyard-loader`: the init container that brings a model's files into a cache before the engine starts.

Every argument is one word of a list: no shell sees what a tenant wrote. Exit 0: everything is in place. 1: not now (the
kubelet starts it again, and what was fetched stays). 2: arguments that cannot be right.
"""

import argparse
import json
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from steelyard.loader.errors import LoaderError
from steelyard.loader.hub import Hub
from steelyard.loader.store import Store

ENDPOINT = "https://huggingface.co"
TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105 (the variable's name)
ENDPOINT_VARIABLE = "HF_ENDPOINT"
TERMINATION_LOG = Path("/dev/termination-log")


class _Lines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"level": record.levelname.lower(), "message": record.getMessage()})


def arguments() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="steelyard-loader",
        description="Bring a model's files from a hub into a cache: once, resumed, and checked by their digests.",
        epilog=f"The hub's token is read from {TOKEN_VARIABLE}, its address from {ENDPOINT_VARIABLE} (default: {ENDPOINT}).",
    )
    parser.add_argument("--repository", required=True, metavar="OWNER/NAME", help="the repository")
    parser.add_argument("--revision", default="main", help="commit, tag or branch (default: main)")
    parser.add_argument("--cache", required=True, type=Path, metavar="FOLDER", help="the cache's folder")
    parser.add_argument("--key", required=True, metavar="NAME", help="the model's folder in the cache")
    parser.add_argument(
        "--unless",
        type=Path,
        metavar="FOLDER",
        help="fetch nothing where this folder is there: what the files are for is made",
    )
    parser.add_argument(
        "--file", action="append", default=[], metavar="PATTERN", help="only files that match; may be repeated"
    )
    return parser


def main(words: list[str] | None = None) -> int:
    """Run; gives the exit status."""
    given = arguments().parse_args(words)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    hub = Hub((os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT).rstrip("/"), os.environ.get(TOKEN_VARIABLE, ""))
    try:
        store = Store(given.cache, given.key)
        if given.unless is not None and given.unless.is_dir():
            store.make()
            logging.getLogger("steelyard.loader").info("%s is there, so nothing is fetched", given.unless)
            return 0
        store.fill(hub, given.repository, given.revision, given.file)
    except (LoaderError, OSError) as problem:
        logging.getLogger("steelyard.loader").error("%s", problem)
        with (
            suppress(OSError),
            TERMINATION_LOG.open("r+", encoding="utf-8") as told,
        ):  # there in a container, and only there
            told.write(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
