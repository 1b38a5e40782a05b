"""The command of every container of the chart runs: with its arguments, environment, files, user and read-only root.

There is no Pulsar. A sidecar must start and answer its probes without it; the others must name what is unreachable.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.chart import CASES, Object, Pod, broker_values, cases_with_values, of_kind, pods, rendered
from tests.support.container import Place

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a read-only root: run `make kubernetes` as root"),
]

# Seconds. Commands wait a minute for ZooKeeper, and a busy machine is slow.
PATIENCE = 900
# Start the command, run the probe until it succeeds, stop the command.
PROBE = """
"$@" & pid=$!
n=0
until PROBE_COMMAND 2>/dev/null; do
  n=$((n + 1)); [ $n -lt 200 ] || exit 9
  kill -0 $pid || exit 8
  sleep 1
done
kill -TERM $pid
wait $pid
"""
# Exit code and output of each command that ends by itself.
ENDS = {
    "deadman": (3, "cannot be used"),
    "handback": (3, "cannot be used"),
    "doctor": (1, "ERROR  metadata store"),
    "plan": (3, "no sidecar answers at"),
}
# Without a network an object store is unreachable; a claim is an empty directory.
RECALIBRATIONS = {"s3": (3, "the history store s3://"), "/history": (0, "TooLittleHistory")}


def _pods(case: str) -> Iterator[Pod]:
    yield from pods(case)
    if case in cases_with_values():
        values = broker_values(case)
        # Pulsar's pods have root's group for their volumes.
        spec = {"containers": values["initContainers"], "volumes": values["extraVolumes"], "securityContext": {}}
        yield Pod(f"{case}: broker", spec, {})


CONTAINERS = [(case, pod, container) for case in CASES for pod in _pods(case) for container in pod.containers]


def _command(place: Place) -> list[str]:
    probe = place.container.get("livenessProbe") or place.container.get("startupProbe")
    if not probe:
        return place.command()
    # Without Pulsar a sidecar lives, but it is never ready.
    command = " ".join(probe["exec"]["command"]).replace("/readyz", "/livez")
    return ["sh", "-c", PROBE.replace("PROBE_COMMAND", command), "sh", *place.command()]


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> Iterator[dict[int, Future[CompletedProcess[str]]]]:
    """Run the containers of the selected tests, many at a time, because most of them wait."""
    with tempfile.TemporaryDirectory(prefix="bundlekeel-containers-") as folder, ThreadPoolExecutor(24) as threads:
        Path(folder).chmod(0o755)
        futures = {}
        calls = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
        for number in [call.params["number"] for call in calls if "number" in call.params]:
            case, pod, container = CONTAINERS[number]
            maps = {item["metadata"]["name"]: item["data"] for item in rendered(case) if item["kind"] == "ConfigMap"}
            place = Place.create(Path(folder) / str(number), pod, container, maps)
            futures[number] = threads.submit(place.run, _command(place), PATIENCE)
        yield futures


@pytest.mark.parametrize(
    "number", range(len(CONTAINERS)), ids=[f"{pod.owner}/{item['name']}" for _, pod, item in CONTAINERS]
)
def test_the_command_runs(number: int, answers: dict[int, Future[CompletedProcess[str]]]) -> None:
    _, _, container = CONTAINERS[number]
    code, text = _expected(container)
    answer = answers[number].result()
    assert answer.returncode == code, answer.stderr
    assert text in answer.stdout + answer.stderr
    assert "Read-only file system" not in answer.stderr
    assert "Permission denied" not in answer.stderr


def _expected(container: Object) -> tuple[int, str]:
    if container["name"] == "recalibrate":
        history = container["args"][container["args"].index("--history") + 1]
        return next(expected for prefix, expected in RECALIBRATIONS.items() if history.startswith(prefix))
    return ENDS.get(container["name"], (0, ""))


def test_it_is_confined(tmp_path: Path) -> None:
    """The test above depends on it: nothing but the writable volumes can be written, and there is no capability."""
    pod = next(pods("default"))
    (container,) = pod.containers
    maps = {"keel-bundlekeel": of_kind("default", "ConfigMap", "keel-bundlekeel")["data"]}
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    place = Place.create(tmp_path / "place", pod, container, maps)
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    for path in ("/", "/etc", "/etc/bundlekeel", "/opt/bundlekeel", *writable):
        answer = place.run(["touch", f"{path}/file"], PATIENCE)
        assert (answer.returncode == 0) == (path in writable), path
    status = place.run(["cat", "/proc/self/status"], PATIENCE).stdout
    assert [line.split()[1] for line in status.splitlines() if line.startswith("Cap")] == ["0" * 16] * 5
    assert "NoNewPrivs:\t1" in status
