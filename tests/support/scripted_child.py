"""A child of `adapters.topics` that says what a test wrote, line by line: for what the real one cannot show.

Run as `python scripted_child.py DIRECTORY`. The n-th child (from 1) says what is in the files `n.1`, `n.2` and so on as
they appear, and beats; it answers `sync` after what it said. A line `!` ends it with code 1, `zzz` stills it for ever.
`n.setup` is what it was told first, `n.args` its arguments and environment.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    """See the module."""
    directory = Path(sys.argv[1])
    number = 1
    while (directory / f"{number}.args").exists():
        number += 1
    (directory / f"{number}.args").write_text(f"{sys.argv} {dict(os.environ)}")
    (directory / f"{number}.setup").write_text(sys.stdin.readline())
    threading.Thread(target=_answer, daemon=True).start()
    part = 1
    while True:
        path = directory / f"{number}.{part}"
        if path.exists():
            part += 1
            for line in path.read_text().splitlines():
                _say(line)
        _say('{"t":"beat"}')
        time.sleep(0.05)


def _answer() -> None:
    for line in sys.stdin:
        told = json.loads(line)
        if told["t"] == "sync":
            _say(json.dumps({"t": "synced", "id": told["id"]}))
    os._exit(0)


def _say(line: str) -> None:
    if line == "!":
        sys.stderr.write("told to end\n")
        sys.stderr.flush()
        os._exit(1)
    if line == "zzz":
        time.sleep(3600)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
