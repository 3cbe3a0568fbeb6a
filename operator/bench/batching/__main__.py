"""`python -m bench.batching`."""

import sys

from bench.batching.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
