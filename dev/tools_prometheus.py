"""Find Prometheus and promtool on the PATH; `python -m dev.tools_prometheus` installs Debian's package if needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

TOOLS = ("prometheus", "promtool")
INSTALL = ("apt-get", "install", "-q", "-y", "--no-install-recommends", "prometheus")
ADVICE = "put prometheus and promtool on the PATH, or run as root: apt-get install --no-install-recommends prometheus"


class ToolsMissing(RuntimeError):
    """The programs are not available; the message is one sentence with the reason."""


def tool(name: str, which: Callable[[str], str | None] = shutil.which) -> Path:
    """Return the path of a program. Raises ToolsMissing if there is none."""
    path = which(name)
    if path is None:
        raise ToolsMissing(f"{name} is missing: {ADVICE}")
    return Path(path)


def ensure(
    which: Callable[[str], str | None] = shutil.which, run: Callable[[Sequence[str]], str] | None = None
) -> dict[str, Path]:
    """Return the paths of prometheus and promtool, and install them if one is missing. Raises ToolsMissing if that
    fails.
    """
    if any(which(name) is None for name in TOOLS):
        install = run or apt_get
        install(("apt-get", "update", "-q"))  # when the mirror is away, lists of yesterday may do
        refused = install(INSTALL)
        if any(which(name) is None for name in TOOLS):
            why = f" (apt-get: {refused})" if refused else ""
            raise ToolsMissing(f"{' and '.join(TOOLS)} are missing and could not be installed{why}: {ADVICE}")
    return {name: tool(name, which) for name in TOOLS}


def apt_get(command: Sequence[str]) -> str:
    """Run an apt-get command. Return why it failed, or "". RUNLEVEL prevents that the package starts its services."""
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}"
    last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return "" if done.returncode == 0 else last[0]


if __name__ == "__main__":
    try:
        for path in ensure().values():
            print(path)
    except ToolsMissing as error:
        sys.exit(str(error))
