"""Rules of the Dockerfile, checked on its text and on its scripts. No container engine is needed or used."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pyspark
import pytest

from bundlekeel import __version__
from bundlekeel.api import ApiServer
from dev.chart import ROOT
from tests.support.dockerfile import Stage, stages
from tests.support.shop import Shop

IMAGE = ROOT / "deploy" / "image"
STAGES = {stage.name: stage for stage in stages((ROOT / "Dockerfile").read_text(encoding="utf-8"))}
FINAL = ("sidecar", "spark")
BUILD_TOOLS = re.compile(
    r"\b(gcc|g\+\+|clang|make|cmake|build-essential|cargo|rustc|maven|[\w.+-]+-dev|\S+-jdk(?:-headless)?)\b"
)


def _locked(name: str) -> dict[str, str]:
    """Distributions and versions of a lock file."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE))


def _hadolint(file: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("hadolint")
    command = [str(program), "--failure-threshold", "info", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_hadolint(tmp_path: Path) -> None:
    """The linter that knows Dockerfiles has nothing to say, and does find mistakes."""
    answer = _hadolint(ROOT / "Dockerfile")
    assert answer.returncode == 0, answer.stdout
    wrong = tmp_path / "Dockerfile"
    wrong.write_text("FROM debian:latest\nRUN cd /tmp && apt-get install curl\n", encoding="utf-8")
    assert {"DL3007", "DL3008"} <= set(re.findall(r"DL\d+", _hadolint(wrong).stdout))


def test_nothing_but_the_base_is_pulled() -> None:
    """A line `# syntax=` would have BuildKit pull a program of no digest, also where PYTHON_IMAGE names a mirror."""
    assert "syntax=" not in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_a_plain_build_makes_the_sidecar() -> None:
    """The last stage is what `docker build` without a target makes."""
    assert list(STAGES)[-1] == "sidecar"
    assert set(FINAL) <= set(STAGES)
    bases = {stage.base for stage in STAGES.values()} - set(STAGES)
    assert all(re.search(r":\d+\.\d+\.\d+-slim", base) for base in bases), bases


@pytest.mark.parametrize("name", FINAL)
def test_final_stages(name: str) -> None:
    """Not root, by a number Kubernetes can check; nothing to build with; nothing written to the image's own folders."""
    stage = STAGES[name]
    assert stage.base not in STAGES
    assert stage.last("USER") == "10000:10000"
    order = [word for word, _ in stage.instructions]
    assert "RUN" not in order[order.index("USER") :]
    for command in stage.all("RUN"):
        assert not BUILD_TOOLS.search(command), command
        assert "pip install" not in command
    assert stage.all("HEALTHCHECK")
    labels = stage.last("LABEL")
    for label in ("title", "description", "licenses", "version"):
        assert f"org.opencontainers.image.{label}=" in labels
    assert f'version="{__version__}"' in labels
    assert stage.last("WORKDIR") == "/var/lib/bundlekeel"
    assert "PYTHONDONTWRITEBYTECODE=1" in stage.last("ENV")
    assert stage.last("ENTRYPOINT").startswith("[")


@pytest.mark.parametrize("name", FINAL)
def test_no_pip_is_left(name: str) -> None:
    """Nothing can be added to a running container with it."""
    assert any(re.search(r"pip uninstall .*\bpip$", command) for command in STAGES[name].all("RUN"))


def test_another_python_needs_no_other_change() -> None:
    """With PYTHON_IMAGE: no path contains its version, and Spark gets the path from the interpreter."""
    assert not [rest for name in FINAL for _, rest in STAGES[name].instructions if "python3." in rest]
    assert "SPARK_HOME" not in STAGES["spark"].last("ENV")
    script, python = Path(sys.executable).with_name("find-spark-home"), sys.executable
    answer = subprocess.run(
        ["bash", "-c", '. "$0"; echo "$SPARK_HOME"', str(script)],
        env={"PATH": os.environ["PATH"], "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(answer.stdout.strip()) == Path(pyspark.__file__).parent


def test_the_sidecar_has_no_package_manager_and_checks_itself() -> None:
    """All required files are copied from the other stages."""
    stage = STAGES["sidecar"]
    assert not any("apt-get" in command for command in stage.all("RUN"))
    assert "/opt/bundlekeel/healthcheck.py" in stage.last("HEALTHCHECK")
    assert stage.last("ENTRYPOINT") == '["bundlekeel"]'


def _copies(stage: Stage) -> list[tuple[str | None, list[str]]]:
    copies = []
    for rest in stage.all("COPY"):
        words = rest.split()
        origin = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
        copies.append((origin, words[:-1]))
    return copies


def test_every_copied_file_exists_and_reaches_the_build() -> None:
    """Each file is in the tree and not excluded by the ignore file. A copy from another stage comes from an earlier
    one.
    """
    patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert patterns[0] == "*"
    allowed = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
    paths: list[str] = []
    for stage in STAGES.values():
        for origin, sources in _copies(stage):
            if origin is not None:
                assert origin in paths
                continue
            for source in sources:
                assert (ROOT / source).exists(), source
                assert any(source == item or source.startswith(f"{item}/") for item in allowed), source
        paths.append(stage.name)
    assert not any(fnmatch.fnmatch(".venv", item) or fnmatch.fnmatch(".git", item) for item in allowed)


def test_everything_is_installed_with_hashes() -> None:
    """Each call of pip reads a lock with hashes, builds our own tree, or takes what these made."""
    for stage in STAGES.values():
        for command in stage.all("RUN"):
            for install in re.findall(r"pip(?: --python \S+)? (?:install|wheel) ([^&]*)", command):
                own = install.strip().endswith(" .") and "--no-deps" in install
                assert "--require-hashes" in install or "--no-index" in install or own, install
    for name in ("runtime.lock", "otel.lock", "build.lock", "spark.lock"):
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
        for block in re.split(r"\n(?=\S)", text):
            assert "--hash=sha256:" in block, block
        assert "://" not in text


def test_locks_agree() -> None:
    """The image runs the tested versions; the build backend is the one in pyproject.toml."""
    tested = _locked("dev.lock")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["build-system"]["requires"] == [f"hatchling=={_locked('build.lock')['hatchling']}"]
    assert "setuptools" in _locked("build.lock")
    # Who adds traces changes nothing else.
    assert _locked("runtime.lock").items() <= _locked("otel.lock").items()
    for name in ("runtime.lock", "otel.lock", "spark.lock", "build.lock"):
        locked = _locked(name)
        differing = {item for item in set(locked) & set(tested) if locked[item] != tested[item]}
        assert differing == set(), name
    for requirement in project["project"]["dependencies"]:
        name = re.split(r"[<>=\[ ;]", requirement)[0]
        assert name in _locked("runtime.lock")
        assert name in _locked("spark.lock")
    for requirement in project["project"]["optional-dependencies"]["spark"]:
        assert re.split(r"[<>=\[ ;]", requirement)[0] in _locked("spark.lock")


# --- the scripts


@pytest.fixture
async def sidecar(tmp_path: Path) -> AsyncIterator[Shop]:
    shop = await Shop().open()
    server = ApiServer(shop.service, "127.0.0.1", 0, tmp_path / "bundlekeel.sock")
    await server.start()
    yield shop
    await server.stop()


async def _healthcheck(socket: Path, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(IMAGE / "healthcheck.py"),
        *arguments,
        env={"BUNDLEKEEL_SOCKET": str(socket)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, output = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_healthcheck(sidecar: Shop, tmp_path: Path) -> None:
    """0 while it lives; 1 with its words when a check fails; 1 without a sidecar."""
    assert await _healthcheck(tmp_path / "bundlekeel.sock") == (0, "")
    assert (await _healthcheck(tmp_path / "bundlekeel.sock", "/readyz"))[0] == 0
    sidecar.clock.offset += 3600.0
    code, output = await _healthcheck(tmp_path / "bundlekeel.sock")
    assert (code, "the last cycle ended 3600 s ago" in output) == (1, True)
    code, output = await _healthcheck(tmp_path / "absent.sock")
    assert (code, output.startswith("no answer")) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        (["recalibrate", "--history", "/history"], "bundlekeel-recalibrate --history /history"),
        (["master", "--port", "7077"], "spark-class org.apache.spark.deploy.master.Master --port 7077"),
        (["worker", "spark://m:7077"], "spark-class org.apache.spark.deploy.worker.Worker spark://m:7077"),
        (
            ["executor"],
            "spark-class org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url spark://d:7078 "
            "--executor-id 4 --cores 2 --app-id app --hostname 10.0.0.9 --resourceProfileId 0 --podName exec-4",
        ),
        (["echo", "as is"], "echo as is"),
    ],
)
def test_spark_entrypoint(tmp_path: Path, arguments: list[str], called: str) -> None:
    """Each role becomes the one program meant, with everything it was given."""
    for name in ("bundlekeel-recalibrate", "spark-class", "echo"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nprintf "%s" "{name} $*"\n', encoding="utf-8")
        program.chmod(0o755)
    executor = {
        "SPARK_DRIVER_URL": "spark://d:7078",
        "SPARK_EXECUTOR_ID": "4",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
        "SPARK_EXECUTOR_POD_NAME": "exec-4",
    }
    entrypoint = IMAGE / "spark-entrypoint.sh"
    assert os.access(entrypoint, os.X_OK)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **executor}
    answer = subprocess.run([str(entrypoint), *arguments], capture_output=True, text=True, env=environment, check=True)
    assert answer.stdout == called


def test_the_executor_class_is_in_pyspark() -> None:
    """The entry point calls it by name, and passes the options this release of Spark reads."""
    jars = Path(pyspark.__file__).parent / "jars"
    (jar,) = jars.glob("spark-kubernetes_*.jar")
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(jar)], capture_output=True, text=True, check=True
    )
    assert "org/apache/spark/scheduler/cluster/k8s/KubernetesExecutorBackend.class" in listed.stdout
