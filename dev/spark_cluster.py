"""Run a Spark standalone cluster of the installed pyspark package on 127.0.0.1: one master and some workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyspark

from dev.cluster.ports import free_ports

HOST = "127.0.0.1"
HOME = Path(pyspark.__file__).parent
# Long time-outs, because a busy machine can pause for minutes although all workers are alive.
_PATIENT = "-Dspark.worker.timeout=3600 -Dspark.network.timeout=3600s"
# Only the first JIT compiler: processes run for minutes, so the second compiler costs more time than it saves.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.extraJavaOptions": BRIEF,
    "spark.executor.extraJavaOptions": BRIEF,
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "700m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.network.timeout": "3600s",
    "spark.executor.heartbeatInterval": "60s",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.port.maxRetries": "40",
}


@contextmanager
def standalone(folder: Path, *, workers: int) -> Iterator[str]:
    """Run a master and workers during the block; yield the master's URL once all workers are registered."""
    port, web = free_ports(2)
    url = f"spark://{HOST}:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(folder, "master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(web)))
        _until(lambda: _state(web) is not None, started)
        for number in range(workers):
            at = ("--host", HOST, "--webui-port", "0", "--work-dir", str(folder / f"work{number}"))
            started.append(_start(folder, "worker.Worker", *at, "-c", "1", "-m", "1g", url))
        _until(lambda: (_state(web) or {}).get("aliveworkers") == workers, started)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(folder: Path, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{_PATIENT} {BRIEF}",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    with (folder / f"{kind}-{len(list(folder.iterdir()))}.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def _state(web: int) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = httpx.get(f"http://{HOST}:{web}/json/", timeout=10).json()
    except (httpx.HTTPError, ValueError):
        return None
    return state


def _until(holds: Any, started: list[subprocess.Popen[bytes]], seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while not holds():
        ended = [process.args for process in started if process.poll() is not None]
        if ended or time.monotonic() > end:
            raise RuntimeError(f"Spark did not come up; ended: {ended}")
        time.sleep(0.2)
