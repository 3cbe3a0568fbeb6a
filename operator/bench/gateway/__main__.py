"""`python -m bench.gateway`."""

import sys

from bench.gateway.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
