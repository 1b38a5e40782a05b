"""Install a lock file of `requirements/` with hashes and show the progress. It imports only the standard library,
because the set-up uses it.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.cache import cache_dir, locked

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements"
_PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--no-compile", "--progress-bar", "off")


def install(name: str, python: str = sys.executable) -> str:
    """Install `requirements/NAME.lock` into the environment of `python`. Return why that failed in one line, or ""."""
    lock = REQUIREMENTS / f"{name}.lock"
    total = len(re.findall(r"^[A-Za-z0-9]", lock.read_text(encoding="utf-8"), re.MULTILINE))
    # The lock file contains all dependencies, so pip need not resolve any.
    command = [python, *_PIP, "--require-hashes", "--no-deps", "-r", str(lock)]
    errors: list[str] = []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    )
    with process, progress(f"packages of {lock.name}", total) as at:
        assert process.stdout is not None
        for line in process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word in ("Collecting", "Requirement", "Ignoring"):
                at(rest.removeprefix("already satisfied: ").partition(" ")[0].partition("=")[0])
            elif word == "Installing":
                at("installing", done=True)
            elif word.startswith("ERROR"):
                errors.append(rest)
    importlib.invalidate_caches()
    code = process.returncode
    return "" if code == 0 else (errors or [f"pip ended with exit code {code}"])[-1]


def directory_of(name: str) -> Path:
    """Return a directory in the cache with the packages of `requirements/NAME.lock`, for PYTHONPATH. The first call
    installs them."""
    lock = REQUIREMENTS / f"{name}.lock"
    target = cache_dir() / f"{name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:8]}"
    scratch = target.with_suffix(".new")
    with locked(target.with_suffix(".lock")):
        if not target.is_dir():
            exact = ("-q", "--upgrade", "--require-hashes", "--no-deps", "--target", str(scratch), "-r", str(lock))
            subprocess.run([sys.executable, *_PIP, *exact], check=True)
            scratch.rename(target)
    return target


def program(name: str, lock: str) -> Path | None:
    """Return a program on the PATH, else the one that `requirements/LOCK.lock` installs; None if both are missing."""
    own = Path(sys.executable).with_name(name)
    executable = shutil.which(name)
    if executable is None and not own.is_file():
        refused = install(lock)
        if refused:
            print(f"setup: requirements/{lock}.lock: {refused}", file=sys.stderr)
    return Path(executable) if executable else own if own.is_file() else None


class _Counter:
    """Shows how many packages are done: on one line of a terminal, otherwise on a new line after each quarter."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._count, self._width = what, max(1, total), 0, 0

    def __call__(self, name: str, *, done: bool = False) -> None:
        before, self._count = self._count, self._total if done else min(self._total, self._count + 1)
        line = f"setup: {self._what} {self._count}/{self._total} {name}"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{line:<{self._width}}")
            self._width = len(line)
        elif 4 * before // self._total != 4 * self._count // self._total or done:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


@contextmanager
def progress(what: str, total: int) -> Iterator[_Counter]:
    """Yield a function that counts one of `total` things, with its name, and shows the count."""
    yield _Counter(what, total)
    if sys.stderr.isatty():
        sys.stderr.write("\n")
