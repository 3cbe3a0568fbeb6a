"""Opens new volumes to pods that are not root.

The controller manager's host-path provisioner makes folders of root alone (mode 0750), and Kubernetes does not apply `fsGroup` to
host paths, as it does to the volumes of real storage. Run as a program of its own in the machine `cp`:
`python volumes.py FOLDER`. It needs the standard library alone.
"""

import os
import sys
import time

OPEN = 0o777
SECONDS = 0.2
"""Less than a pod takes from its volume's binding to its container's start."""


def open_new(folder: str, known: set[str]) -> set[str]:
    """Open the volumes in `folder` that are not `known`, and return all that are there now."""
    there = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                there.add(entry.name)
                if entry.name not in known:
                    os.chmod(entry.path, OPEN)
    return there


def main() -> None:
    known: set[str] = set()
    while True:
        known = open_new(sys.argv[1], known)
        time.sleep(SECONDS)


if __name__ == "__main__":
    main()
