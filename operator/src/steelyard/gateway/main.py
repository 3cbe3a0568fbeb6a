"""`steelyard-gateway`: the command line of the serving data path (docs/design/interfaces.md)."""

import argparse
import logging
import sys

import uvloop

from steelyard.gateway import log as logs
from steelyard.gateway.process import Options, Process
from steelyard.gateway.settings import SettingsError

log = logging.getLogger(__name__)


def main() -> None:
    """Run the gateway; exit 0 after draining, 2 when it cannot start with what it was given."""
    options = parse(sys.argv[1:])
    logs.set_up()
    try:
        uvloop.run(_serve(options))
    except (SettingsError, OSError, RuntimeError) as error:
        log.error("cannot start", extra={"fields": {"why": str(error)}})
        sys.exit(2)


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    said = "The serving data path: an OpenAI API in front of prefill and decode engines."
    parser = argparse.ArgumentParser(prog="steelyard-gateway", description=said)
    parser.add_argument("--config", required=True, help="settings file (JSON), re-read when it changes")
    parser.add_argument("--port", type=int, default=8000, help="port of the API; default %(default)s")
    parser.add_argument(
        "--metrics-port", type=int, default=9090, help="of /metrics, /ready, /live, /demand; default %(default)s"
    )
    parser.add_argument("--host", default="", help="address to listen on; default all")
    parser.add_argument("--pods", help="JSON file of engine pods, instead of the API server")
    parser.add_argument(
        "--drain-delay", type=float, default=3.0, help="seconds of accepting after SIGTERM; default %(default)s"
    )
    parser.add_argument(
        "--drain-timeout", type=float, default=60.0, help="seconds to finish what runs then; default %(default)s"
    )
    return Options(**vars(parser.parse_args(arguments)))


async def _serve(options: Options) -> None:
    await Process(options).run()


if __name__ == "__main__":
    main()
