"""Fetch the cluster's class path once, with Maven, into a cache outside the source tree."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.cluster.spec import PULSAR_VERSION, ClusterError

POM = Path(__file__).with_name("pom.xml")
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
INSTALL_HINT = "install both with: apt-get install openjdk-17-jdk maven"
OLDEST_JAVA = 17
STAMP = ".pom-sha256"

# Same classes as zookeeper-with-patched-admin, but bound to a Jetty that is not on the class path.
UNWANTED = re.compile(r"zookeeper-\d[\d.]*\.jar")


def cache_dir() -> Path:
    """Return ``$BUNDLEKEEL_CACHE`` or ``~/.cache/bundlekeel``; it need not exist yet."""
    configured = os.environ.get("BUNDLEKEEL_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "bundlekeel"


def ensure_jars() -> list[Path]:
    """Return the jars of the class path, sorted; the first call downloads them (about a minute).

    Safe against other processes doing the same. Raises ClusterError when java, Maven or the
    download fails; nothing half done is left under the final name.
    """
    require_tool("java")
    target = cache_dir() / f"pulsar-{PULSAR_VERSION}"
    wanted = hashlib.sha256(POM.read_bytes()).hexdigest()
    if not _is_current(target, wanted):
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.with_name(f"{target.name}.lock")):
            if not _is_current(target, wanted):
                _download(target, wanted)
    return sorted(target.glob("*.jar"))


def require_tool(name: str) -> str:
    """Return the path of ``java`` (17 or newer) or ``mvn``; raise ClusterError with the remedy."""
    found = shutil.which(name)
    if found is None:
        raise ClusterError(f"the local cluster needs `{name}`, which is not on the PATH; {INSTALL_HINT}")
    if name == "java":
        version = _java_version(found)
        if version < OLDEST_JAVA:
            raise ClusterError(f"the local cluster needs Java {OLDEST_JAVA}+, but `java` is {version}; {INSTALL_HINT}")
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; the kernel drops it when the holder dies."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _java_version(java: str) -> int:
    """Return the feature number of a JVM (8, 11, 17 …), 0 when it does not say."""
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match.group(1)) if match else 0


def _is_current(target: Path, wanted: str) -> bool:
    stamp = target / STAMP
    return stamp.is_file() and stamp.read_text().strip() == wanted


def _download(target: Path, wanted: str) -> None:
    """Copy the dependencies beside the target, then swap them in by one rename."""
    mvn = require_tool("mvn")
    print(
        f"cluster: fetching Pulsar {PULSAR_VERSION} with Maven, once (about 250 MB) …",
        file=sys.stderr,
        flush=True,
    )
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        _run_maven(mvn, scratch)
        for jar in scratch.glob("*.jar"):
            if UNWANTED.fullmatch(jar.name):
                jar.unlink()
        (scratch / STAMP).write_text(wanted + "\n")
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    count = len(list(target.glob("*.jar")))
    print(f"cluster: {count} jars in {target}", file=sys.stderr, flush=True)


def _run_maven(mvn: str, output: Path) -> None:
    command = [
        mvn,
        "-B",
        "-q",
        "-f",
        str(POM),
        COPY_GOAL,
        "-DincludeScope=runtime",
        f"-DoutputDirectory={output}",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if answer.returncode != 0 or not any(output.glob("pulsar-broker-*.jar")):
        lines = [line for line in (answer.stdout + answer.stderr).splitlines() if "ERROR" in line]
        tail = "\n  ".join(lines[:8])
        raise ClusterError(f"Maven could not fetch the cluster's jars (exit {answer.returncode}):\n  {tail}")
