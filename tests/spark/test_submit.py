"""spark-submit with the wheel alone: what driver and executors load is the wheel's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundlekeel.recalibration.rules.thresholds_json import parsed
from dev.spark_cluster import BRIEF, HOME, HOST, standalone

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600, method="signal")]
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """\
import sys
from bundlekeel.recalibration.jobs.__main__ import main
from bundlekeel.recalibration.jobs.session import session

def where(_):
    import bundlekeel
    return bundlekeel.__file__

there = session().sparkContext.parallelize([0], 1).map(where).first()
sys.stdout.write(f"driver: {where(0)}\\nexecutor: {there}\\n")
sys.exit(main())
"""


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dedicated cluster. The session that the other tests share holds all cores of its cluster until the suite ends,
    so a second application there would wait without end.
    """
    with standalone(tmp_path_factory.mktemp("submit"), workers=1) as url:
        yield url


def test_by_spark_submit(own: str, small: Path, tmp_path: Path) -> None:
    """A standalone cluster, `--py-files` and the options of the command: thresholds.json is there."""
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    wheel = next(tmp_path.glob("*.whl"))
    script = tmp_path / "recalibrate.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [
            *(str(HOME / "bin" / "spark-submit"), "--master", own, "--py-files", str(wheel)),
            *("--conf", f"spark.driver.host={HOST}", "--conf", "spark.executor.memory=512m"),
            *("--driver-java-options", BRIEF, "--conf", f"spark.executor.extraJavaOptions={BRIEF}"),
            *(str(script), "--history", str(small), "--out", str(tmp_path / "out"), "--min-days", "3"),
            *("--strategy", "avg", "--parameter", "move_price", "--points", "2", "--rounds", "0"),
        ],
        env=os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    # spark-submit gives all that a script says to its own stdout.
    lines = [line.partition(": ") for line in ran.stdout.splitlines()]
    loaded = {name: path for name, _, path in lines if name in ("driver", "executor")}
    assert sorted(loaded) == ["driver", "executor"], ran.stdout
    assert f"/{wheel.name}/" in loaded["driver"]
    # Spark puts no .whl on the path of executors: theirs is a copy by another name.
    assert f"/{wheel.stem}.zip/" in loaded["executor"]
    document = parsed(next((tmp_path / "out").glob("*/thresholds.json")).read_bytes())
    assert set(document.parameters) == {"move_price"}
