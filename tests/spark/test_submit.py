"""spark-submit with the wheel alone, on two workers: what driver and executors load is the wheel's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pyarrow.fs as pafs
import pytest

from bundlekeel.recalibration.parquet import ParquetStore
from bundlekeel.recalibration.parquet.threshold_files import calibration_folder
from bundlekeel.recalibration.rules.thresholds_json import parsed
from dev.cluster.ports import free_ports
from dev.history_worlds import write
from dev.spark_cluster import BRIEF, HOME, HOST, standalone
from dev.wheels import directory_of
from tests.spark.conftest import SMALL

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600, method="signal")]
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """\
import os, sys
from bundlekeel.recalibration.jobs.__main__ import main
from bundlekeel.recalibration.jobs.session import session

def where(_):
    import bundlekeel
    return os.path.abspath(bundlekeel.__file__)

there = session().sparkContext.parallelize(range(4), 4).map(where).distinct().collect()
sys.stdout.write(f"driver: {where(0)}\\n" + "".join(f"executor: {path}\\n" for path in there))
sys.exit(main())
"""
KEYS = {"AWS_ACCESS_KEY_ID": "keel", "AWS_SECRET_ACCESS_KEY": "keel-test", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A dedicated cluster. The session that the other tests share holds all cores of its cluster until the suite ends,
    so a second application there would wait without end.
    """
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with standalone(tmp_path_factory.mktemp("submit"), workers=2) as url:
        yield url


@pytest.fixture
def bucket(tmp_path: Path, own: str) -> Iterator[str]:
    """The query of S3 URIs of the bucket `keel`, in a server process of moto. `own` sets the credentials."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    environment = os.environ | {"PYTHONPATH": str(directory_of("s3"))}
    with (tmp_path / "moto.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 300
        while server.poll() is None and time.monotonic() < end:
            with suppress(httpx.HTTPError):
                httpx.get(f"http://{HOST}:{port}/moto-api/", timeout=10)
                break
            time.sleep(0.2)
        query = f"endpoint_override={HOST}:{port}&scheme=http&region=us-east-1"
        files, _ = pafs.FileSystem.from_uri(f"s3://keel?{query}&allow_bucket_creation=true")
        files.create_dir("keel")
        yield query
    finally:
        server.terminate()
        server.wait(60)


def submit(master: str, folder: Path, history: str, out: str) -> None:
    """Build the wheel and submit the nightly run on a cluster. It reads the history and writes one proposal."""
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    wheel = next(folder.glob("*.whl"))
    script = folder / "recalibrate.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [
            *(str(HOME / "bin" / "spark-submit"), "--master", master, "--py-files", str(wheel)),
            *("--conf", f"spark.driver.host={HOST}", "--conf", "spark.executor.memory=512m"),
            *("--driver-java-options", BRIEF, "--conf", f"spark.executor.extraJavaOptions={BRIEF}"),
            *(str(script), "--history", history, "--out", out, "--min-days", "3", "--placements", "1"),
            *("--parameter", "move_price", "--points", "2", "--rounds", "0"),
        ],
        env=os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    # spark-submit gives all that a script says to its own stdout.
    loaded = [line.partition(": ")[::2] for line in ran.stdout.splitlines() if line.startswith(("driver: ", "exec"))]
    driver, *executors = [path for _, path in loaded]
    assert f"/{wheel.name}/" in driver
    # Spark puts no .whl on the path of executors: theirs is a copy by another name, in the directory of each.
    assert len(executors) == 2 and all(f"/{wheel.stem}.zip/" in path for path in executors), ran.stdout
    document = calibration_folder(out if "://" in out else Path(out)).newest()
    assert document is not None and set(parsed(document.data).parameters) == {"move_price"}


def test_by_spark_submit(own: str, small: Path, tmp_path: Path) -> None:
    """A standalone cluster, `--py-files` and the options of the command: thresholds.json is there."""
    submit(own, tmp_path, str(small), str(tmp_path / "out"))


def test_with_an_object_store(own: str, bucket: str, tmp_path: Path) -> None:
    """History is written to the server, every executor reads it there, and the proposal is written there."""
    history = f"s3://keel/history?{bucket}"
    write(SMALL, history)
    before = ParquetStore(history).files()
    submit(own, tmp_path, history, f"s3://keel/calibration?{bucket}")
    assert len(before) == 72 and ParquetStore(history).files() == before
