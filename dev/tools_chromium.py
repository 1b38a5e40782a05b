"""Chromium for the tests of the web page: the one on the PATH, else Debian's package.

`python -m dev.tools_chromium` installs it if needed and prints its path.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from dev.tools_prometheus import ToolsMissing, apt_get

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL = ("apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core")
ADVICE = "put chromium on the PATH, or run as root: apt-get install --no-install-recommends chromium"


def ensure(which: Callable[[str], str | None] = shutil.which, run: Callable[[Sequence[str]], str] = apt_get) -> Path:
    """Return the path of Chromium, and install it if it is missing. Raises ToolsMissing if it is not available."""
    path = _find_program(which)
    if path is None:
        run(("apt-get", "update", "-q"))  # when the mirror is away, lists of yesterday may do
        refused = run(INSTALL)
        path = _find_program(which)
        if path is None:
            why = f" (apt-get: {refused})" if refused else ""
            raise ToolsMissing(f"chromium is missing and could not be installed{why}: {ADVICE}")
    return Path(path)


def _find_program(which: Callable[[str], str | None]) -> str | None:
    return next((path for name in NAMES if (path := which(name)) is not None), None)


if __name__ == "__main__":
    try:
        print(ensure())
    except ToolsMissing as error:
        sys.exit(str(error))
