"""Tidy up after a cluster, also after one whose launcher was killed.

Run as ``python -I -S janitor.py DATA_DIR LOGS_DIR CGROUP_DIR…`` with stdin connected to the launcher.
It waits for the end of stdin, that is for the launcher to finish or to die, then removes the cgroups
and the data. DATA_DIR is empty when the data is to be kept. After a death (no "clean" line on stdin)
LOGS_DIR survives, for whoever wants to know why.
"""

import shutil
import sys
import time
from pathlib import Path

# The children of a dead launcher get SIGKILL at once; this is how long they may take to vanish.
PATIENCE_SECONDS = 10.0


def main(data_dir: str, logs_dir: str, cgroups: list[str]) -> None:
    """Wait for the launcher's end, then clean."""
    clean = "clean" in sys.stdin.read()
    for name in cgroups:
        remove_cgroup(Path(name))
    if data_dir:
        remove_data(Path(data_dir), None if clean else Path(logs_dir))


def remove_cgroup(path: Path) -> None:
    """Remove an emptied cgroup with its children; give up quietly after a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while path.exists() and time.monotonic() < deadline:
        try:
            for child in [entry for entry in path.iterdir() if entry.is_dir()]:
                child.rmdir()
            path.rmdir()
        except OSError:
            time.sleep(0.05)  # a process is still leaving


def remove_data(data: Path, spared: Path | None) -> None:
    """Remove the data directory, or everything in it but ``spared``."""
    for entry in data.iterdir() if data.is_dir() else ():
        if entry == spared:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    if spared is None:
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
