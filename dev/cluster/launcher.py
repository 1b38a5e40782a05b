"""The launcher: the process that runs the cluster of ``python -m dev.cluster up``. Other commands send it requests.

The launcher writes a state file in the cache directory and listens on a private Unix socket. A request and its response
are one line of JSON each. Only the launcher sends signals to the children, because only their parent can be sure that a
pid was not reused.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from dev.cache import cache_dir
from dev.cluster.choose import open_cluster
from dev.cluster.cluster import Cluster
from dev.cluster.spec import ClusterError, ClusterSpec

State = dict[str, Any]

# Time limit of a request in seconds. The slowest request is the restart of a broker with a CPU quota.
ANSWER_SECONDS = 200.0
ACTIONS = ("kill", "pause", "resume", "restart")


def state_file() -> Path:
    """Return the path of the state file (JSON) of the running cluster."""
    return cache_dir() / "cluster.json"


def describe(cluster: Cluster, control: str) -> State:
    """Return the state of a cluster: addresses, and pid and condition of every process."""
    processes = {}
    for name in cluster.names:
        alive = cluster.alive(name)
        condition = "dead" if not alive else "paused" if cluster.paused(name) else "running"
        pid = cluster.pid(name) if alive else None
        processes[name] = {"pid": pid, "condition": condition, "log": str(cluster.log(name))}
    return {
        "launcher_pid": os.getpid(),
        "control": control,
        "pulsar": cluster.spec.release.version,
        "mode": cluster.spec.mode,
        "metadata_url": cluster.metadata_url,
        "configuration_url": cluster.configuration_url,
        "zk_hosts": cluster.zk_hosts,
        "zk_audit_log": str(cluster.zk_audit_log),
        "service_url": cluster.service_url,
        "cpu_isolation": cluster.cpu_isolation,
        "data_dir": str(cluster.data_dir),
        "secure_dir": str(cluster.security.directory) if cluster.spec.secure else "",
        "brokers": [asdict(broker) for broker in cluster.brokers],
        "processes": processes,
    }


def ask(command: str, name: str = "") -> State:
    """Send a command to the launcher and return the state after it.

    Raises ClusterError when no cluster runs or the launcher refuses.
    """
    try:
        control = str(json.loads(state_file().read_text())["control"])
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(control)
            connection.sendall(json.dumps({"command": command, "name": name}).encode() + b"\n")
            with connection.makefile("rb") as reader:
                answer = json.loads(reader.readline())
    except (FileNotFoundError, ConnectionError):
        raise ClusterError("no cluster is running; start one with: python -m dev.cluster up") from None
    except (OSError, ValueError, KeyError) as error:
        raise ClusterError(f"the launcher gave no usable answer: {error}") from error
    if "error" in answer:
        raise ClusterError(str(answer["error"]))
    return dict(answer)


class Launcher:
    """Starts a cluster, executes requests until "down" or a signal, then stops the cluster."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._cluster = open_cluster(spec)
        self._stopping = False

    def run(self, announce: Callable[[State], None]) -> None:
        """Run until SIGINT, SIGTERM or the command "down". ``announce(state)`` is called when the cluster is ready.

        Raises ClusterError if another cluster of this cache directory runs or the start fails.
        """
        for sig in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sig, self._interrupt)
        with only_launcher(), tempfile.TemporaryDirectory(prefix="bundlekeel-ctl-") as private:
            control = str(Path(private) / "s")
            try:
                with suppress(KeyboardInterrupt), self._cluster, socket.socket(socket.AF_UNIX) as server:
                    try:
                        server.bind(control)
                        server.listen()
                        self._publish(control)
                        announce(describe(self._cluster, control))
                        self._serve(server, control)
                    finally:
                        self._stopping = True
            finally:
                state_file().unlink(missing_ok=True)

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        """Stop cleanly after the first signal; ignore later signals, which would interrupt the stop."""
        if not self._stopping:
            self._stopping = True
            raise KeyboardInterrupt

    def _publish(self, control: str) -> None:
        """Replace the state file atomically, so that readers never get a partial file."""
        fresh = state_file().with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(describe(self._cluster, control), indent=2) + "\n")
        fresh.replace(state_file())

    def _serve(self, server: socket.socket, control: str) -> None:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as stream, suppress(OSError, ValueError):
                request = json.loads(stream.readline())
                try:
                    self._obey(str(request["command"]), str(request["name"]))
                    answer: State = describe(self._cluster, control)
                except ClusterError as error:
                    answer = {"error": str(error)}
                stream.write(json.dumps(answer).encode() + b"\n")
                stream.flush()
                self._publish(control)
                if request["command"] == "down":
                    return

    def _obey(self, command: str, name: str) -> None:
        if command in ACTIONS:
            getattr(self._cluster, command)(name)
        elif command not in ("status", "down"):
            raise ClusterError(f"unknown command {command!r}")


@contextmanager
def only_launcher() -> Iterator[None]:
    """Hold a lock during the block, so that each cache directory has at most one launcher. Raises ClusterError if
    another launcher holds it.
    """
    path = cache_dir() / "cluster.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(
                "a cluster is already running; stop it with: python -m dev.cluster down, "
                "or set BUNDLEKEEL_CACHE to another directory"
            ) from None
        yield
