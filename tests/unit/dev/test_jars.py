"""Jars of a lock file, fetched from a Maven repository of our own: verified, resumed, by the settings people have."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dev.cluster import ClusterError
from dev.cluster.maven import Jar, Source, fetch, find_source, read_lock
from dev.pulsar_releases import RELEASES, Release


class Repository:
    """A Maven repository on loopback, and what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        # Responses cut off after this number of bytes, by file name; each is used once.
        self.cut: dict[str, int] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, repository=self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, coordinate: str, content: bytes) -> Jar:
        """A jar it has."""
        group, artifact, *classifier, version = coordinate.split(":")
        jar = Jar(group, artifact, "".join(classifier), version, hashlib.sha256(content).hexdigest())
        path = self.folder / jar.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return jar

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: Any, repository: Repository) -> None:
        self._repository = repository
        super().__init__(*arguments, directory=str(repository.folder))

    def do_GET(self) -> None:
        name = Path(self.path).name
        self._repository.asked.append(name)
        limit = self._repository.cut.pop(name, None)
        if limit is None:
            super().do_GET()
            return
        content = (self._repository.folder / self.path.lstrip("/")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:limit])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    (tmp_path / "remote").mkdir()
    result = Repository(tmp_path / "remote")
    yield result
    result.close()


def laid(repository: Repository, tmp_path: Path, jars: list[Jar], local: Path | None = None) -> Path:
    """Fetch them into a folder."""
    target = tmp_path / "target"
    target.mkdir(exist_ok=True)
    fetch(jars, target, Source(repository.address, local=local), tmp_path / "parts")
    return target


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_the_committed_lock_is_of_the_committed_pom(release: Release) -> None:
    """The broker of the release and of pom.xml; hashes and coordinates, no address."""
    jars = read_lock(release.lock)
    (broker,) = [jar for jar in jars if jar.artifact == "pulsar-broker"]
    assert broker.version == release.version
    assert f"version>{broker.version}<" in release.pom.read_text(encoding="utf-8")
    assert len(jars) > 300
    # In one folder each needs a name of its own.
    assert len({jar.name for jar in jars}) == len(jars)
    assert "://" not in release.lock.read_text(encoding="utf-8")
    # In 4.2 the classes of both jars clash.
    assert len({"zookeeper", "zookeeper-with-patched-admin"} & {jar.artifact for jar in jars}) == 1


@pytest.mark.parametrize("line", ["group:artifact:1", "a:1 " + "0" * 64, "a:b:1 " + "0" * 63, "a:b:c:d:e " + "0" * 64])
def test_a_line_that_is_none_is_refused(tmp_path: Path, line: str) -> None:
    """It is quoted."""
    (tmp_path / "x.lock").write_text(f"# comment\n{line}\n")
    with pytest.raises(ClusterError, match=line):
        read_lock(tmp_path / "x.lock")


def test_jars_are_fetched_and_laid_flat(repository: Repository, tmp_path: Path) -> None:
    """With and without a classifier; a lock line is what reads back."""
    jars = [repository.add("org.a:one:1.0", b"first"), repository.add("org.a.b:two:linux-x86_64:2.0", b"second")]
    (tmp_path / "x.lock").write_text("".join(f"{jar}\n" for jar in jars))
    assert read_lock(tmp_path / "x.lock") == jars
    target = laid(repository, tmp_path, jars)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        "one-1.0.jar": b"first",
        "two-2.0-linux-x86_64.jar": b"second",
    }


def test_a_download_that_breaks_off_is_not_taken_for_whole(repository: Repository, tmp_path: Path) -> None:
    """It is asked for again."""
    jar = repository.add("org.a:one:1.0", b"x" * 100_000)
    repository.cut[jar.name] = 40_000
    target = laid(repository, tmp_path, [jar])
    assert (target / jar.name).stat().st_size == 100_000
    assert repository.asked.count(jar.name) == 2


def test_what_an_interrupted_run_left_is_used_or_thrown_away(repository: Repository, tmp_path: Path) -> None:
    """A whole jar is not fetched again, half of one is."""
    whole, half = repository.add("org.a:one:1.0", b"whole"), repository.add("org.a:two:1.0", b"two halves")
    for jar, content in ((whole, b"whole"), (half, b"two")):
        part = tmp_path / "parts" / jar.path
        part.parent.mkdir(parents=True)
        part.write_bytes(content)
    target = laid(repository, tmp_path, [whole, half])
    assert (target / half.name).read_bytes() == b"two halves"
    assert whole.name not in repository.asked


def test_a_jar_that_is_not_the_locked_one_is_refused(repository: Repository, tmp_path: Path) -> None:
    """Whoever serves it; nothing of it is laid."""
    jar = repository.add("org.a:one:1.0", b"as locked")
    (repository.folder / jar.path).write_bytes(b"something else")
    with pytest.raises(ClusterError, match=r"one-1\.0\.jar could not be fetched from 127\.0\.0\.1: its hash"):
        laid(repository, tmp_path, [jar])
    assert not list((tmp_path / "target").iterdir())


def test_a_jar_that_is_not_there_is_named_without_the_password(repository: Repository, tmp_path: Path) -> None:
    jar = Jar("org.a", "one", "", "1.0", "0" * 64)
    address = repository.address.replace("://", "://someone:secret@")
    with pytest.raises(ClusterError, match=r"one-1\.0\.jar could not be fetched") as refused:
        fetch([jar], tmp_path, Source(address), tmp_path / "parts")
    assert "secret" not in str(refused.value)
    named = ("MAVEN_REPOSITORY", "HTTPS_PROXY", "REQUESTS_CA_BUNDLE")
    assert [word for word in named if word not in str(refused.value)] == []


def test_maven_s_own_repository_is_looked_into_first(repository: Repository, tmp_path: Path) -> None:
    """A jar that is there is not fetched, unless it is not the one of the lock."""
    good, bad = repository.add("org.a:one:1.0", b"one"), repository.add("org.a:two:1.0", b"two")
    for jar, content in ((good, b"one"), (bad, b"built by hand")):
        path = tmp_path / "local" / jar.path
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    target = laid(repository, tmp_path, [good, bad], local=tmp_path / "local")
    assert (target / bad.name).read_bytes() == b"two"
    assert good.name not in repository.asked
    assert (tmp_path / "local" / bad.path).read_bytes() == b"built by hand"


SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0">
  <localRepository>${env.DISK}/maven</localRepository>
  <servers><server><id>ours</id><username>me@x</username><password>${env.SECRET}</password></server></servers>
  <mirrors>
    <mirror><id>other</id><mirrorOf>snapshots,!central</mirrorOf><url>https://other.example</url></mirror>
    <mirror><id>ours</id><mirrorOf>external:*</mirrorOf><url>https://mirror.example/maven</url></mirror>
  </mirrors>
  <proxies>
    <proxy><active>false</active><host>old.example</host><port>1</port></proxy>
    <proxy><host>proxy.example</host><port>3128</port><nonProxyHosts>localhost|*.example</nonProxyHosts></proxy>
  </proxies>
</settings>
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS)
    return tmp_path


def test_settings_of_maven_are_heeded(home: Path) -> None:
    """Mirror with its server's name and password, proxy, local repository, variables."""
    source = find_source({"DISK": "/disk", "SECRET": "p/w"}, home)
    assert source.address == "https://me%40x:p%2Fw@mirror.example/maven"
    assert source.local == Path("/disk/maven")
    assert source.proxies["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert source.proxies["NO_PROXY"] == "localhost,.example"


def test_the_environment_wins_over_the_settings(home: Path) -> None:
    """A repository named there, and a proxy."""
    source = find_source({"MAVEN_REPOSITORY": "https://near.example", "https_proxy": "http://p:1"}, home)
    assert (source.address, source.proxies) == ("https://near.example", {})


def test_without_settings_it_is_maven_central_directly(tmp_path: Path) -> None:
    source = find_source({}, tmp_path)
    assert source == Source(local=tmp_path / ".m2" / "repository")


def test_settings_that_cannot_be_read_are_named(home: Path) -> None:
    """Rather than passed over, with a firewall's time-out for an answer."""
    (home / ".m2" / "settings.xml").write_text("<settings>")
    with pytest.raises(ClusterError, match=r"settings\.xml cannot be read"):
        find_source({}, home)


def test_a_proxy_of_the_settings_is_asked_and_no_longer_set_afterwards(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    jar = repository.add("org.a:one:1.0", b"one")
    (repository.folder / "nowhere.invalid").mkdir()
    with pytest.raises(ClusterError, match=r"from nowhere\.invalid: it is not there"):
        fetch([jar], tmp_path, Source("http://nowhere.invalid", {"HTTP_PROXY": repository.address}), tmp_path / "parts")
    assert repository.asked.count("one-1.0.jar") == 3
    assert "HTTP_PROXY" not in os.environ
