"""The same cluster from the official image, for machines with a Docker engine instead of Maven.

Honest status: written against testcontainers' API and type-checked, but NOT RUN on the machine it was
written on, which has no Docker engine. The containers share the host's network, so addresses, ports and
configuration files are exactly those of the jar cluster; that works on Linux, not with Docker Desktop.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from typing import Any

from dev.cluster.cgroups import PERIOD_MICROSECONDS, CpuGroups
from dev.cluster.cluster import Cluster
from dev.cluster.process import Child, Handle, Spawner
from dev.cluster.spec import PULSAR_VERSION

IMAGE = f"apachepulsar/pulsar:{PULSAR_VERSION}"
POLL_SECONDS = 0.1


class ContainerHandle:
    """One container, seen as a process."""

    def __init__(self, container: Any) -> None:
        """Wrap the docker-py object of a started container."""
        self._container = container

    @property
    def pid(self) -> int:
        """The pid of the container's main process on the engine's machine."""
        self._container.reload()
        return int(self._container.attrs["State"]["Pid"])

    def poll(self) -> int | None:
        """Return the exit code, None while it runs (or is paused)."""
        self._container.reload()
        state = self._container.attrs["State"]
        return None if state["Running"] else int(state["ExitCode"])

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raise subprocess.TimeoutExpired when it does not come."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self._container.name, timeout or 0.0)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, sig: int) -> None:
        """Signal the main process; nothing happens when it has ended."""
        if self.poll() is None:
            self._container.kill(signal=signal.Signals(sig).name)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ContainerSpawner(Spawner):
    """Starts a container per process; testcontainers' reaper removes them if we die."""

    def __init__(self) -> None:
        """Start with no containers."""
        super().__init__()
        self._started: list[Any] = []

    def _spawn(self, child: Child) -> Handle:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only here, it is optional

        # A shell only to have the log in the same file as with jars; exec makes java the main process.
        command = f"exec {shlex.join(child.command)} >> {shlex.quote(str(child.log))} 2>&1"
        options: dict[str, Any] = {
            "network_mode": "host",
            "user": f"{os.getuid()}:{os.getgid()}",
            "working_dir": str(child.cwd),
            "entrypoint": ["sh", "-c"],
        }
        if child.cpu_quota_cores is not None:
            options["cpu_period"] = PERIOD_MICROSECONDS
            options["cpu_quota"] = int(child.cpu_quota_cores * PERIOD_MICROSECONDS)
        container = DockerContainer(IMAGE, **options).with_command([command])
        container = container.with_volume_mapping(str(child.cwd), str(child.cwd), "rw")
        container.start()
        self._started.append(container)
        return ContainerHandle(container.get_wrapped_container())

    def close(self, *, clean: bool) -> None:
        """Remove the containers, then do what every spawner does."""
        while self._started:
            self._started.pop().stop()
        super().close(clean=clean)


class ContainerCluster(Cluster):
    """``Cluster`` with a container per process; same names, addresses and files."""

    def _java_command(self) -> list[str]:
        return ["java", "-cp", "/pulsar/lib/*"]

    def _make_spawner(self) -> Spawner:
        return ContainerSpawner()

    def _open_groups(self) -> None:
        """Let the engine create the cgroups; here they are only named."""
        if self.spec.cpu_quota_cores is not None:
            answer = subprocess.run(
                ["docker", "info", "--format", "{{.CgroupVersion}}"],
                capture_output=True,
                text=True,
                check=False,
            )
            self._groups = CpuGroups("cgroup-v2" if answer.stdout.strip() == "2" else "cgroup-v1")

    def _limit_cpu(self, child: Child, cores: float) -> None:
        child.cpu_quota_cores = cores
