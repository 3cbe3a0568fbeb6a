"""`python -m bench.operator`."""

import sys

from bench.operator.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
