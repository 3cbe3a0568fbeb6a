"""`python -m e2e.load`."""

from e2e.load.cli import main

if __name__ == "__main__":
    main()
