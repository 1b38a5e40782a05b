"""A child of `pulsar.topics` that prints scripted lines, for cases that the real one cannot produce.

Run as `python scripted_child.py DIRECTORY`. The n-th child (from 1) prints the lines of the files `n.1`, `n.2` and so
on as they appear, and sends heartbeats. It answers `sync` after its lines. A line `!` ends it with code 1, `zzz` makes
it silent until it is stopped. `n.setup` contains its first input, `n.args` its arguments and environment.
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
        message = json.loads(line)
        if message["t"] == "sync":
            _say(json.dumps({"t": "synced", "id": message["id"]}))
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
