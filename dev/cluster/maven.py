"""Fetch the jars of a lock file from a Maven repository, without Maven: in parallel, each verified, resumable.

A line of a lock file is ``group:artifact[:classifier]:version sha256``; it names no repository. The address is
``$MAVEN_REPOSITORY``, else the mirror of Maven Central in ``~/.m2/settings.xml``, else that of Maven Central in the
``jgo`` package. Proxies come from the environment (``HTTPS_PROXY``, ``NO_PROXY``), else from settings.xml.
``REQUESTS_CA_BUNDLE`` names additional certificates. A jar in Maven's local repository is not fetched again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from xml.etree import ElementTree

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dev.cluster.spec import ClusterError

REPOSITORY_VARIABLE = "MAVEN_REPOSITORY"
WORKERS = 8
ATTEMPTS = 3
TIMEOUT_SECONDS = 30
# Without a terminal: one line per this many jars.
LINE_EACH = 40


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar: its Maven coordinates and its hash, from one line of a lock file."""

    group: str
    artifact: str
    classifier: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's name, as Maven has it."""
        return f"{self.artifact}-{self.version}{f'-{self.classifier}' if self.classifier else ''}.jar"

    @property
    def path(self) -> Path:
        """Return the path of the jar inside a Maven repository."""
        return Path(*self.group.split("."), self.artifact, self.version, self.name)

    def __str__(self) -> str:
        parts = (self.group, self.artifact, self.classifier, self.version)
        return f"{':'.join(part for part in parts if part)} {self.sha256}"


def read_lock(file: Path) -> list[Jar]:
    """Return the jars of a lock file. Raises ClusterError if a line is malformed."""
    jars = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        coordinate, _, sha256 = line.partition(" ")
        parts = coordinate.split(":")
        if len(parts) not in (3, 4) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise ClusterError(f"{file.name}: not a line of a lock file: {line!r}")
        group, artifact, *classifier, version = parts
        jars.append(Jar(group, artifact, "".join(classifier), version, sha256))
    return jars


@dataclass(frozen=True, slots=True)
class Source:
    """A source of jars: a repository's address ("" is Maven Central), proxy variables, and a local repository."""

    address: str = ""
    proxies: Mapping[str, str] = field(default_factory=dict)
    local: Path | None = None


def find_source(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> Source:
    """Read the environment and Maven's settings. Raises ClusterError if settings.xml cannot be read."""
    folder = (home or Path.home()) / ".m2"
    settings, file = None, folder / "settings.xml"
    if file.is_file():
        try:
            settings = ElementTree.fromstring(_filled_in(file.read_text(encoding="utf-8"), environment))
        except ElementTree.ParseError as error:
            raise ClusterError(f"Maven's settings {file} cannot be read: {error}") from None
        for element in settings.iter():
            element.tag = element.tag.rpartition("}")[2]
    local = settings.findtext("localRepository", "").strip() if settings is not None else ""
    return Source(
        address=environment.get(REPOSITORY_VARIABLE, "") or _mirror(settings),
        proxies=_proxies(settings, environment),
        local=Path(local) if local else folder / "repository",
    )


def _filled_in(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with ``${env.NAME}`` and ``${user.home}`` replaced, as Maven does."""
    text = text.replace("${user.home}", environment.get("HOME", ""))
    return re.sub(r"\$\{env\.(\w+)\}", lambda match: environment.get(match.group(1), ""), text)


def _mirror(settings: Any) -> str:
    """Return the address of the first mirror of Maven Central, with the name and password of its server."""
    for mirror in settings.iterfind("mirrors/mirror") if settings is not None else ():
        covers = [part.strip() for part in mirror.findtext("mirrorOf", "").split(",")]
        if "!central" in covers or not {"*", "external:*", "central"} & set(covers):
            continue
        address = urlsplit(mirror.findtext("url", "").strip())
        for server in settings.iterfind("servers/server"):
            name, password = server.findtext("username", ""), server.findtext("password", "")
            if server.findtext("id") == mirror.findtext("id") and name and "@" not in address.netloc:
                who = f"{quote(name, safe='')}:{quote(password, safe='')}"
                address = address._replace(netloc=f"{who}@{address.netloc}")
        return str(urlunsplit(address))
    return ""


def _proxies(settings: Any, environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables for the first active proxy in the settings; {} if the environment has a proxy."""
    if settings is None or {"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} & set(environment):
        return {}
    for proxy in settings.iterfind("proxies/proxy"):
        if proxy.findtext("active", "true").strip() != "true":
            continue
        host, port = proxy.findtext("host", "").strip(), proxy.findtext("port", "8080").strip()
        name, password = proxy.findtext("username", ""), proxy.findtext("password", "")
        who = f"{quote(name, safe='')}:{quote(password, safe='')}@" if name else ""
        without = [part.strip().lstrip("*") for part in proxy.findtext("nonProxyHosts", "").split("|")]
        address = f"http://{who}{host}:{port}"
        return {"HTTP_PROXY": address, "HTTPS_PROXY": address, "NO_PROXY": ",".join(filter(None, without))}
    return {}


def fetch(jars: list[Jar], target: Path, source: Source, parts: Path, console: Console | None = None) -> None:
    """Put every jar, verified, into the directory `target`. Jars that are not in the local repository are downloaded
    first. `parts` keeps downloads between two attempts. Raises ClusterError, with the jar's name, if a jar is not
    available.
    """
    fetcher, progress = _Fetcher(source, parts), _show_progress(len(jars), console or Console(stderr=True))
    with _proxied(source), progress as done, ThreadPoolExecutor(WORKERS) as pool:
        pending = [pool.submit(fetcher.lay, jar, target) for jar in jars]
        try:
            for future in as_completed(pending):
                done(future.result())
        except BaseException:
            for future in pending:
                future.cancel()
            raise


@contextmanager
def _proxied(source: Source) -> Iterator[None]:
    """Set the proxies in the environment during the block only. jgo reads them; later processes must not use them."""
    os.environ.update(source.proxies)
    try:
        yield
    finally:
        for name in source.proxies:
            os.environ.pop(name, None)


class _Fetcher:
    """Provides one jar per call; several threads can call it."""

    def __init__(self, source: Source, parts: Path) -> None:
        # Imported here, because the import takes a quarter of a second and only downloads need it.
        from jgo.maven import MavenContext  # noqa: PLC0415

        self._source, self._parts = source, parts
        remote = {"central": source.address.rstrip("/")} if source.address else None
        self._maven = MavenContext(repo_cache=parts, remote_repos=remote, timeout=TIMEOUT_SECONDS)
        (address,) = self._maven.remote_repos.values()
        # The repository's host for messages, without the password that its address can contain.
        self._host = urlsplit(address).hostname or address

    def lay(self, jar: Jar, target: Path) -> int:
        """Put the jar into the directory `target`, and return its size in bytes."""
        place = target / jar.name
        local = self._source.local / jar.path if self._source.local else None
        if local is not None and _holds(local, jar):
            shutil.copyfile(local, place)
        else:
            shutil.copyfile(self._downloaded(jar), place)
        return place.stat().st_size

    def _downloaded(self, jar: Jar) -> Path:
        part = self._parts / jar.path
        why = ""
        for attempt in range(ATTEMPTS):
            if _holds(part, jar):
                return part
            # Incomplete files of an earlier run, and files that are not in the lock.
            part.unlink(missing_ok=True)
            time.sleep(attempt)
            why = self._attempt(jar)
        if not why and _holds(part, jar):
            return part
        part.unlink(missing_ok=True)
        raise ClusterError(
            f"{jar.name} could not be fetched from {self._host}: {why or 'its hash is not that of the lock file'}; "
            f"a mirror is named by {REPOSITORY_VARIABLE} or in Maven's settings.xml, a proxy by HTTPS_PROXY, "
            "the file of certificates to trust by REQUESTS_CA_BUNDLE"
        )

    def _attempt(self, jar: Jar) -> str:
        artifact = self._maven.project(jar.group, jar.artifact).at_version(jar.version).artifact(jar.classifier)
        try:
            artifact.resolve()
        except (
            OSError,
            RuntimeError,
        ) as error:  # requests' errors are OSErrors; jgo says "not found" by a RuntimeError
            return "it is not there" if isinstance(error, RuntimeError) else type(error).__name__
        return ""


def _holds(path: Path, jar: Jar) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == jar.sha256


@contextmanager
def _show_progress(total: int, console: Console) -> Iterator[Callable[[int], None]]:
    """Show a bar in a terminal, otherwise an occasional line. Yield a function that takes the size of each jar."""
    columns = (TextColumn("jars"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[size]}"))
    sizes: list[int] = []
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("jars", total=total, size="")

        def done(size: int) -> None:
            sizes.append(size)
            size_text = f"{sum(sizes) / 1e6:.0f} MB"
            bar.update(task, completed=len(sizes), size=size_text)
            if not console.is_terminal and len(sizes) % LINE_EACH == 0:
                console.print(f"jars: {len(sizes)} of {total}, {size_text}")

        yield done
