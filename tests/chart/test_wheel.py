"""The wheel, installed from the lock, as an unprivileged user on a read-only machine: what the image promises.

Everything is mounted read-only in a mount namespace of its own, but for the two folders that docs/operations/docker.md
names. Not even /tmp may be written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from bundlekeel import __version__
from dev.chart import ROOT
from tests.support.chart import settings_of

# Each installation starts from zero.
pytestmark = pytest.mark.timeout(900)

NOBODY = 65534
# Seconds; on a machine that is busy with other things a start of Python may take many.
PATIENCE = 400
DECIDE = b'{"reset":{"strategy":"avg"}}\n{"brokers":{},"bundles":{}}\n'

# Arguments: our directory, Python's own directory, the closed directory that contains it or "", then the command.
# Python may be below a home directory that other users may not enter. The namespace then has an open one with only
# Python in it.
CONFINE = """
set -eu
stage=$1 python=$2 closed=$3
shift 3
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -m 750 /var/lib/bundlekeel /run/bundlekeel
chown "$NOBODY:$NOBODY" /var/lib/bundlekeel /run/bundlekeel
if [ -n "$closed" ]; then
  mount --bind "$python" "$stage/hold"
  mount -t tmpfs -o mode=755 tmpfs "$closed"
  mkdir -p "$python"
  mount --bind "$stage/hold" "$python"
  mount -o remount,bind,ro "$python"
  mount -o remount,bind,ro "$closed"
fi
mount -o remount,bind,ro /
cd /var/lib/bundlekeel
exec setpriv --reuid="$NOBODY" --regid="$NOBODY" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def _closed(folder: Path) -> str:
    """The uppermost folder on the way that others may not enter; "" when the way is open."""
    for parent in reversed(folder.parents):
        if not parent.stat().st_mode & 0o001:
            return str(parent)
    return ""


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment with the wheel, in a folder everybody may read."""

    stage: Path

    @property
    def bin(self) -> Path:
        """The directory of the installed programs."""
        return self.stage / "venv" / "bin"

    def command(self, *command: str) -> list[str]:
        """Return the command as user nobody, in the read-only namespace."""
        base = Path(sys.base_prefix).resolve()
        # With process numbers of its own: when the first process is killed, nothing it started is left behind.
        own = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["unshare", *own, "sh", "-c", CONFINE, "confine", str(self.stage), str(base), _closed(base), *command]

    def run(self, *command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run it to its end, at most PATIENCE."""
        return subprocess.run(
            self.command(*command),
            input=stdin,
            capture_output=True,
            env=self.environment(),
            check=False,
            timeout=PATIENCE,
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the image, without ours."""
        path = f"{self.bin}:{os.environ['PATH']}"
        return {"PATH": path, "NOBODY": str(NOBODY), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/var/lib/bundlekeel"}


def _install(stage: Path) -> None:
    """Install as the Dockerfile does: build tools and all runtime packages, from locks with hashes."""
    # Building writes below the sources (a cache of compiled files), so that it happens to a copy.
    source = stage / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "service", source / "service", ignore=shutil.ignore_patterns("__pycache__"))
    quiet = ("--quiet", "--disable-pip-version-check")
    locks, build = ROOT / "requirements", str(stage / "build" / "bin" / "python")
    runtime = str(stage / "venv" / "bin" / "python")
    wheels, locked = stage / "wheel", stage / "locked"
    pip = [build, "-m", "pip"]
    make_wheels = [*pip, "wheel", *quiet, "--no-build-isolation"]
    for command in (
        [sys.executable, "-m", "venv", str(stage / "build")],
        [*pip, "install", *quiet, "--require-hashes", "--only-binary", ":all:", "-r", str(locks / "build.lock")],
        [*make_wheels, "--require-hashes", "--wheel-dir", str(locked), "-r", str(locks / "runtime.lock")],
        [*make_wheels, "--no-deps", "--wheel-dir", str(wheels), str(source)],
        [sys.executable, "-m", "venv", "--without-pip", str(stage / "venv")],
    ):
        subprocess.run(command, check=True)
    install = [*pip, "--python", runtime, "install", *quiet, "--no-deps", "--no-index"]
    wheel_paths = [str(wheel) for folder in (locked, wheels) for wheel in folder.glob("*.whl")]
    subprocess.run([*install, *wheel_paths], check=True)
    for folder in (stage / "build", wheels, locked):
        shutil.rmtree(folder)
    shutil.rmtree(source)


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a machine read-only for these: run `make chart` as root")
    # pytest's own folders are closed to others.
    stage = Path(tempfile.mkdtemp(prefix="bundlekeel-wheel-"))
    try:
        stage.chmod(0o755)
        (stage / "hold").mkdir()
        _install(stage)
        (stage / "settings.yaml").write_text(settings_of("default"), encoding="utf-8")
        yield Installed(stage)
    finally:
        shutil.rmtree(stage)


def test_it_is_confined(installed: Installed) -> None:
    """The other tests depend on it: the user is nobody and may write in two directories only."""
    assert installed.run("id", "-u").stdout.strip() == str(NOBODY).encode()
    for place in ("/tmp", str(installed.stage), str(installed.bin), "/var/lib", "/etc"):
        refused = installed.run("touch", f"{place}/keel-test")
        assert refused.returncode != 0, place
        assert b"Read-only file system" in refused.stderr or b"Permission denied" in refused.stderr
    for place in ("/var/lib/bundlekeel", "/run/bundlekeel"):
        assert installed.run("touch", f"{place}/keel-test").returncode == 0


def test_version_and_settings(installed: Installed) -> None:
    """The chart's own settings file is taken."""
    assert installed.run("bundlekeel", "--version").stdout.decode().split()[-1] == __version__
    checked = installed.run("bundlekeel", "config", "check", str(installed.stage / "settings.yaml"))
    assert (checked.returncode, checked.stdout) == (0, b"ok\n"), checked.stderr


def test_decide(installed: Installed) -> None:
    """A turn, from line to line."""
    decided = installed.run("bundlekeel", "decide", stdin=DECIDE)
    assert decided.returncode == 0, decided.stderr
    (line,) = decided.stdout.splitlines()
    answer = msgspec.json.decode(line)
    assert answer["unload"] == {}
    assert answer["plan_hash"]


def test_the_sidecar_runs_there(installed: Installed) -> None:
    """It starts without ZooKeeper, says that it lives, and ends at SIGTERM."""
    settings = installed.stage / "settings.yaml"
    text = settings.read_text(encoding="utf-8").replace("zk:pulsar-zookeeper:2181", "zk:127.0.0.1:1")
    (installed.stage / "alone.yaml").write_text(text, encoding="utf-8")
    # One shell: the namespace's folders are gone with its last process.
    script = """
    BUNDLEKEEL__API__PORT=0 BUNDLEKEEL__API__HOST=127.0.0.1 bundlekeel run -c "$1" & pid=$!
    n=0
    until python "$2"; do
      n=$((n + 1)); [ $n -lt 300 ] || exit 9
      kill -0 $pid || exit 8
      sleep 0.2
    done 2>/dev/null
    echo alive
    kill -TERM $pid; wait $pid; echo "ended $?"
    ls /run/bundlekeel
    """
    check = installed.stage / "healthcheck.py"
    shutil.copy(ROOT / "deploy" / "image" / "healthcheck.py", check)
    began = time.monotonic()
    answer = installed.run("sh", "-c", script, "sh", str(installed.stage / "alone.yaml"), str(check))
    errors = answer.stderr.decode()
    assert answer.stdout.decode().split("\n")[:2] == ["alive", "ended 0"], f"{time.monotonic() - began:.0f} s: {errors}"
    assert "Read-only" not in errors
    assert "Permission denied" not in errors
