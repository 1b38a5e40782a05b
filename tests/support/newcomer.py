"""Helpers for tests that follow the documentation as a new user: commands of pages, a copy of the sources, a shell."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README, GETTING_STARTED = "README.md", "docs/operations/getting-started.md"
PAGES = (README, GETTING_STARTED)
SETTINGS = "bundlekeel.yaml"
# tests/kubernetes runs these.
KUBERNETES = ("helm ", "kubectl ")
_FENCE = re.compile(r"^```(?:bash|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[list[str]]:
    """Return the lines of each shell block of a page, with comments."""
    blocks_read = _FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [[line for line in block.replace("\\\n", " ").splitlines() if line.strip()] for block in blocks_read]


def lines(page: str) -> list[str]:
    """Return the command lines of all blocks, without those for Kubernetes."""
    return [line for block in blocks(page) for line in block if not line.startswith(KUBERNETES)]


def words(line: str) -> list[str]:
    """Return the words of a line without its comment, and without the path of a program in the virtual environment."""
    return [word.removeprefix(".venv/bin/") for word in shlex.split(line, comments=True)]


def copy_of_sources(to: Path) -> None:
    """Copy the files of a clone, uncommitted changes included."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)


class Shell:
    """One bash in a directory, as an operator has it open. The output of each line goes to its own file, so that
    background processes do not mix with later commands.
    """

    def __init__(self, folder: Path, logs: Path, *, patience: float) -> None:
        """`patience`: seconds after which a line that does not end makes the test fail."""
        self._patience, self._logs, self._typed = patience, logs, 0
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("BUNDLEKEEL_", "PYTHON")) and key != "VIRTUAL_ENV"
        }
        own = {
            # The Python these tests run on, and nothing of ours.
            "PATH": f"{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}",
            # A port of its own: the default one may be taken on a machine that is shared.
            "BUNDLEKEEL__API__PORT": "0",
            # A terminal in which no table is folded.
            "COLUMNS": "200",
        }
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env={**environment, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, line: str) -> tuple[int, str]:
        """Run a line and return its exit code and its output. Raises AssertionError if it does not end in time."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._typed += 1
        log = self._logs / f"{self._typed:03d}.log"
        self._bash.stdin.write(f"{{ {line}\n}} > {shlex.quote(str(log))} 2>&1 < /dev/null; echo $?\n")
        self._bash.stdin.flush()
        timer = threading.Timer(self._patience, self.close)
        timer.start()
        try:
            code = self._bash.stdout.readline().strip()
        finally:
            timer.cancel()
        output = log.read_text(encoding="utf-8", errors="replace")
        assert code.isdecimal(), f"`{line}` did not end within {self._patience:.0f} s:\n{output}"
        return int(code), output

    def until(self, line: str, pattern: str) -> str:
        """Repeat a line until it succeeds and its output matches `pattern`. Return the output."""
        deadline = time.monotonic() + self._patience
        while True:
            code, output = self.run(line)
            if code == 0 and re.search(pattern, output):
                return output
            assert time.monotonic() < deadline, f"`{line}` ended with {code} and never said {pattern!r}:\n{output}"
            time.sleep(1.0)

    def close(self) -> None:
        """End the shell and all processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        for pipe in (self._bash.stdin, self._bash.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()


@contextlib.contextmanager
def opened(folder: Path, logs: Path, *, patience: float) -> Iterator[Shell]:
    """Yield a shell in a directory. End it and its processes at the end of the block."""
    shell = Shell(folder, logs, patience=patience)
    try:
        yield shell
    finally:
        shell.close()
