"""A session of the nightly run: who can reach its driver."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(600, method="signal")
# A process of its own: a session is one a process, and the suite has another one.
SCRIPT = """\
import json, os, subprocess, sys
import psutil
from bundlekeel.recalibration.jobs.session import session
made = session(sys.argv[1] or None)
java = [item for item in psutil.Process().children(recursive=True) if "java" in item.name()]
ports = [at for item in java for at in item.net_connections("tcp") if at.status == psutil.CONN_LISTEN]
conf = made.sparkContext.getConf()
told = {name: conf.get(name) for name in ("spark.authenticate", "spark.driver.bindAddress", "spark.master")}
total = made.sparkContext.parallelize(range(10), 2).map(lambda item: item + 1).sum()
print(json.dumps({"hosts": sorted({at.laddr.ip for at in ports}), "total": total, **told}))
made.stop()
"""


@pytest.mark.parametrize(
    "master", ["", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("local", "local[1]"))]
)
def test_h20_a_local_driver_is_reached_from_this_machine_alone(master: str) -> None:
    """It listens on loopback and asks for a secret that Spark makes; without either, whoever reaches it is served."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, master], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout.splitlines()[-1])
    assert output["hosts"] and {host.removeprefix("::ffff:") for host in output["hosts"]} == {"127.0.0.1"}
    assert output["total"] == 55
    assert (output["spark.authenticate"], output["spark.driver.bindAddress"]) == ("true", "127.0.0.1")
