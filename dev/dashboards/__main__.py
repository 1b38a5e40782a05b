"""`python -m dev.dashboards write|check`: write the JSON files, or name those that are not what the code says."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dev.dashboards.pages import PAGES
from dev.docs import drift, write

USAGE = "usage: python -m dev.dashboards write|check"


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    if list(arguments) == ["write"]:
        write(PAGES)
        return 0
    if list(arguments) == ["check"]:
        messages = [text.replace("dev.docs write", "dev.dashboards write") for text in drift(PAGES)]
        for message in messages:
            print(message, file=sys.stderr)
        return 1 if messages else 0
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
