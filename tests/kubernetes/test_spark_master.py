"""Spark's own driver on a `k8s://` master, with the settings and the account of the chart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dev.java import spark_environment
from dev.spark_cluster import HOST
from tests.support.chart import Object
from tests.support.kubernetes import PATIENCE, Namespace

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800, method="signal")]
# A process of its own, because a process has one session. It ends when its standard input is closed.
SCRIPT = """\
import json, sys
from bundlekeel.recalibration.jobs.session import session
made = session(sys.argv[1], json.loads(sys.argv[2]))
sys.stdin.read()
made.stop()
"""


def executors(namespace: Namespace) -> list[Object]:
    """Return the pods that Spark created."""
    items: list[Object] = json.loads(namespace.kubectl("get", "pods", "-l", "spark-role=executor", "-o", "json"))[
        "items"
    ]
    return items


def until_executors(namespace: Namespace, count: int) -> list[Object]:
    """Return the executors as soon as there are `count` of them, or after some time."""
    end = time.monotonic() + PATIENCE
    while len(pods := executors(namespace)) != count and time.monotonic() < end:
        time.sleep(0.5)
    return pods


def settings_of(namespace: Namespace, folder: Path) -> dict[str, Any]:
    """Return the Spark settings of the chart's CronJob, for a driver on this machine instead of in a pod."""
    job = json.loads(namespace.kubectl("get", "cronjob", "keel-bundlekeel-recalibrate", "-o", "json"))
    arguments = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]
    pairs = [value for option, value in pairwise(arguments) if option == "--conf"]
    settings = dict(pair.split("=", 1) for pair in pairs)
    template = json.loads(namespace.kubectl("get", "configmap", "keel-bundlekeel-executor", "-o", "json"))
    (folder / "executor.yaml").write_text(template["data"]["executor.yaml"])
    (folder / "token").write_text(namespace.kubectl("create", "token", "keel-bundlekeel-recalibrate"))
    del settings["spark.kubernetes.driver.pod.name"]
    return settings | {
        "spark.kubernetes.executor.podTemplateFile": str(folder / "executor.yaml"),
        "spark.kubernetes.authenticate.oauthTokenFile": str(folder / "token"),
        "spark.kubernetes.authenticate.caCertFile": str(namespace.kubernetes.ca),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.driver.port": "0",
        "spark.blockManager.port": "0",
        "spark.local.dir": str(folder),
    }


def test_the_driver_creates_and_deletes_its_executors(namespace: Namespace, tmp_path: Path) -> None:
    """The account may do it, the namespace admits the pods, and they are those of the chart's template."""
    namespace.deploy("install", "spark-kubernetes")
    settings = settings_of(namespace, tmp_path)
    master = f"k8s://{namespace.kubernetes.url}"
    command = [sys.executable, "-c", SCRIPT, master, json.dumps(settings)]
    environment = os.environ | spark_environment() | {"SPARK_LOCAL_IP": HOST}
    with (tmp_path / "driver.log").open("w+") as log:
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log) as driver:
            pods = until_executors(namespace, int(settings["spark.executor.instances"]))
        log.seek(0)
        assert driver.returncode == 0 and len(pods) == int(settings["spark.executor.instances"]), log.read()
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["image"] == settings["spark.kubernetes.container.image"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["spec"]["serviceAccountName"] == "keel-bundlekeel"
        assert pod["spec"]["automountServiceAccountToken"] is False
    assert until_executors(namespace, 0) == []
