"""Remove the data and cgroups of a cluster when its launcher (the process that runs it) has ended or was killed.

Run as ``python -I -S janitor.py DATA_DIR LOGS_DIR CGROUP_DIR…`` with stdin connected to the launcher. The end of stdin
means that the launcher has ended. Then the janitor removes the cgroups and the data. An empty DATA_DIR keeps the data.
If the launcher died (no "clean" line on stdin), LOGS_DIR is kept, so that the reason can be found.
"""

import shutil
import sys
import time
from pathlib import Path

# Seconds to wait for the children of a dead launcher to end. The kernel has sent them SIGKILL.
PATIENCE_SECONDS = 10.0


def main(data_dir: str, logs_dir: str, cgroups: list[str]) -> None:
    """Wait for the launcher's end, then remove cgroups and data."""
    clean = "clean" in sys.stdin.read()
    for name in cgroups:
        remove_cgroup(Path(name))
    if data_dir:
        remove_data(Path(data_dir), None if clean else Path(logs_dir))


def remove_cgroup(path: Path) -> None:
    """Remove a cgroup with its children once its processes have ended. Give up without an error after a time limit."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while path.exists() and time.monotonic() < deadline:
        try:
            for child in [entry for entry in path.iterdir() if entry.is_dir()]:
                child.rmdir()
            path.rmdir()
        except OSError:
            time.sleep(0.05)  # a process is still leaving


def remove_data(data: Path, spared: Path | None) -> None:
    """Remove the data directory, or everything in it except ``spared``."""
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
