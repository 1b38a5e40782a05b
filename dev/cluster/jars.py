"""The cluster's class path: the jars of a release's `jars.lock`, fetched once into a cache outside the source tree."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dev.cache import cache_dir, locked
from dev.cluster.maven import Jar, fetch, find_source, read_lock
from dev.cluster.spec import ClusterError
from dev.pulsar_releases import Release

COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def ensure_jars(release: Release) -> list[Path]:
    """Return the jars of a release's class path, sorted. The first call downloads them; see `ensure_locked`."""
    return ensure_locked(release.lock, f"pulsar-{release.version}")


def ensure_locked(lock: Path, name: str) -> list[Path]:
    """Return the jars of a lock file, sorted.

    The first call downloads them (a minute) into the directory `name` of the cache. Several processes may call it in
    parallel. After an interruption, the next call continues the download. Raises ClusterError if a jar is not
    available; an incomplete download never has the final name.
    """
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:8]
    target = cache_dir() / f"{name}-{digest}"
    if not target.is_dir():
        with locked(target.with_name(f"{target.name}.lock")):
            if not target.is_dir():
                _download(read_lock(lock), target)
    return sorted(target.glob("*.jar"))


def _download(jars: list[Jar], target: Path) -> None:
    """Download into a temporary directory, then rename it to the target."""
    source = find_source()
    print(f"jars: {len(jars)} of Pulsar into {target}, once …", file=sys.stderr, flush=True)
    parts = target.with_name(f"{target.name}.parts")
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        fetch(jars, scratch, source, parts)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(parts, ignore_errors=True)


def lock_jars(release: Release) -> int:
    """Resolve a release's pom.xml with Maven and write its `jars.lock`. Return the number of jars.

    Raises ClusterError if Maven fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = ["mvn", "-B", "-q", "-f", str(release.pom), COPY_GOAL, "-DincludeScope=runtime"]
        command += ["-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={folder}"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise ClusterError("the lock file is made with Maven, and there is no `mvn` on the PATH") from None
        if answer.returncode != 0:
            raise ClusterError(f"Maven could not resolve {release.pom}:\n{answer.stdout}{answer.stderr}")
        lines = sorted(str(_jar(path, Path(folder))) for path in Path(folder).rglob("*.jar"))
    release.lock.write_text(
        "# Made from pom.xml by `python -m dev.cluster lock`.\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )
    return len(lines)


def _jar(path: Path, repository: Path) -> Jar:
    *group, artifact, version = path.relative_to(repository).parent.parts
    classifier = path.stem.removeprefix(f"{artifact}-{version}").removeprefix("-")
    return Jar(".".join(group), artifact, classifier, version, hashlib.sha256(path.read_bytes()).hexdigest())
