"""Compile and run the Java oracle (dev/oracle/java), a program that calls Pulsar's classes from the cached jars."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from dev.cache import cache_dir, locked
from dev.cluster.jars import ensure_jars, ensure_locked
from dev.java import NO_COMPILER, compiler, find_java, no_java
from dev.pulsar_releases import RELEASES, Release

HERE = Path(__file__).parent
# The last release of Pulsar 4.0. The oracle uses its defaults, and those of its classes that differ from 4.2.
OLDER_VERSION = "4.0.8"
# The oracle is compiled with the jars of this release, which the compiler of Java 17 can read. It calls what only later
# releases have by reflection.
COMPILED_WITH = RELEASES["4.2"]


class OracleError(Exception):
    """The oracle (the Java program) could not be built or started, or it ended."""


class Oracle:
    """A JVM that responds to JSON lines in their order. Only one thread can use it.

    >>> with Oracle() as oracle:  # doctest: +SKIP
    ...     oracle.ask({"reset": {"strategy": "threshold", "config": {}}})
    """

    def __init__(self, *options: str, release: Release = COMPILED_WITH) -> None:
        """`options`: arguments of the JVM, for example ``-Xmx2g``. `release`: the release whose classes it calls."""
        self.release = release
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None

    def __enter__(self) -> Oracle:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Compile if the sources changed, and start the JVM. Raises OracleError if that fails, ClusterError if jars are
        missing.
        """
        java = find_java(self.release.oldest_java)
        if java is None:
            raise OracleError(no_java(self.release.oldest_java))
        command = [
            str(java),
            *self._options,
            f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}",
            "-cp",
            f"{compiled()}:{ensure_jars(self.release)[0].parent}/*",
            "bundlekeel.oracle.Oracle",
        ]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the JVM
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints
        )

    def ask(self, line: object) -> Any:
        """Send one line (an object, or JSON as bytes) and return its response."""
        return self.ask_all([line])[0]

    def ask_all(self, lines: Iterable[object]) -> list[Any]:
        """Send many lines and return their responses. Writing and reading overlap, so that no pipe fills up."""
        process = self._running()
        encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(self._write, encoded)
            assert process.stdout is not None
            answers = [self._parse(process.stdout.readline()) for _ in encoded]
            writing.result()
        return answers

    def close(self) -> None:
        """End the JVM by closing its input."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if self._complaints is not None:
            self._complaints.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise OracleError("the oracle does not run; use it as a context manager")
        if self._process.poll() is not None:
            raise self._death()
        return self._process

    def _death(self) -> OracleError:
        assert self._complaints is not None
        self._complaints.seek(0)
        complaints = self._complaints.read()[-2000:].decode(errors="replace").strip()
        return OracleError(f"the oracle died{f': {complaints}' if complaints else ''}")

    def _write(self, lines: list[bytes]) -> None:
        process = self._running()
        assert process.stdin is not None
        for line in lines:
            process.stdin.write(line + b"\n")
        process.stdin.flush()

    def _parse(self, line: bytes) -> Any:
        if not line:
            raise self._death()
        return json.loads(line)


def compiled() -> Path:
    """Return the directory of the compiled classes in the cache, whose name is a hash of the sources. Compile them if
    the directory does not exist.
    """
    sources = sorted((HERE / "java").glob("*.java"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    target = cache_dir() / f"oracle-{COMPILED_WITH.version}-{digest}"
    if target.is_dir():
        return target
    jars = ensure_jars(COMPILED_WITH)
    with locked(cache_dir() / "oracle.lock"):
        if not target.is_dir():
            _compile(sources, f"{jars[0].parent}/*", target)
    return target


def _compile(sources: list[Path], path: str, target: Path) -> None:
    javac = compiler()
    if javac is None:
        raise OracleError(f"the oracle cannot be built: {NO_COMPILER}")
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        command = [str(javac), "-proc:none", "-nowarn", "-cp", path, "-d", str(scratch), *map(str, sources)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise OracleError(f"javac failed:\n{answer.stderr}")
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def older_jar(artifact: str = "pulsar-broker") -> Path:
    """Return a jar of Pulsar 4.0 that `older.lock` lists; the first call downloads it into the cache."""
    jars = ensure_locked(HERE / "older.lock", f"pulsar-{OLDER_VERSION}")
    return next(jar for jar in jars if jar.name == f"{artifact}-{OLDER_VERSION}.jar")
