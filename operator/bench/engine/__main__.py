"""`python -m bench.engine`."""

import sys

from bench.engine.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
