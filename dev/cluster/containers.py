"""The cluster in containers of Pulsar's official image, chosen by ``CLUSTER=docker``.

All containers use the network of one additional container, which publishes every port under the same number on
127.0.0.1. So addresses are the same inside and outside of the containers, also with Docker Desktop. Brokers have
different ports and the same host. The demo was run once with Docker's engine 20.10; tests use a fake engine API.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from dev.cluster.cgroups import PERIOD_MICROSECONDS, CpuGroups
from dev.cluster.cluster import HOST, BeforeBrokers, Cluster
from dev.cluster.process import Child, Handle, Spawner
from dev.cluster.spec import ClusterError, ClusterSpec

POLL_SECONDS = 0.1
# Processes listen on all addresses, because Docker connects published ports to the container's address.
EVERYWHERE = "0.0.0.0"


class ContainerHandle:
    """A container with the interface of a process (``Handle``)."""

    def __init__(self, container: Any) -> None:
        self._container = container

    @property
    def pid(self) -> int:
        """Return the pid of the container's main process on the engine's machine."""
        self._container.reload()
        return int(self._container.attrs["State"]["Pid"])

    def poll(self) -> int | None:
        """Return the exit code; None while the container runs or is paused."""
        self._container.reload()
        state = self._container.attrs["State"]
        return None if state["Running"] else int(state["ExitCode"])

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the container ends, and return its exit code. Raises subprocess.TimeoutExpired after `timeout`
        seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self._container.name, timeout or 0.0)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal to the container's main process, if it has not ended."""
        if self.poll() is None:
            self._container.kill(signal=signal.Signals(sig).name)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def succeeds(self, command: list[str]) -> bool:
        """Run a command in the container. Return whether its exit code is 0; False if the container has ended."""
        return self.poll() is None and self._container.exec_run(command).exit_code == 0


class ContainerSpawner(Spawner):
    """Starts one container per process. If this process dies, the reaper of testcontainers removes them."""

    def __init__(self, image: str, published: Callable[[], list[int]]) -> None:
        """`published`: function that returns the ports to publish; called after the ports were chosen."""
        super().__init__()
        self._image = image
        self._published = published
        self._started: list[Any] = []

    def _spawn(self, child: Child) -> Handle:
        if not self._started:
            self._hold_network()
        # A shell, so that the log is in the same file as with jars. `exec` makes java the main process.
        command = f"exec {shlex.join(child.command)} >> {shlex.quote(str(child.log))} 2>&1"
        options: dict[str, Any] = {
            "network_mode": f"container:{self._started[0].get_wrapped_container().id}",
            "user": f"{os.getuid()}:{os.getgid()}",
            "working_dir": str(child.cwd),
            "entrypoint": ["sh", "-c"],
        }
        if child.cpu_quota_cores is not None:
            options["cpu_period"] = PERIOD_MICROSECONDS
            options["cpu_quota"] = int(child.cpu_quota_cores * PERIOD_MICROSECONDS)
        container = DockerContainer(self._image, **options).with_command([command])
        container = container.with_volume_mapping(str(child.cwd), str(child.cwd), "rw")
        return self._run(container)

    def _hold_network(self) -> None:
        """Start the container whose network all other containers use, so that the network outlives killed processes."""
        container: Any = DockerContainer(self._image, entrypoint=["sleep"]).with_command(["infinity"])
        # Published on loopback only; `with_bind_ports` has no argument for this.
        container.ports = {f"{port}/tcp": (HOST, port) for port in self._published()}
        self._run(container)

    def _run(self, container: Any) -> ContainerHandle:
        # Stored before the start, so that a container whose start fails is removed, too.
        self._started.append(container)
        container.start()
        return ContainerHandle(container.get_wrapped_container())

    def close(self, *, clean: bool) -> None:
        """Remove all containers, the one that provides the network last, then close as every spawner does."""
        while self._started:
            self._started.pop().stop()
        super().close(clean=clean)


class ContainerCluster(Cluster):
    """A ``Cluster`` with a container per process, the same names and files, and every address on 127.0.0.1."""

    _bind_host = HOST

    def __init__(self, spec: ClusterSpec, before_brokers: BeforeBrokers | None = None) -> None:
        listening = {"clientPortAddress": EVERYWHERE}
        if spec.secure:
            listening["secureClientPortAddress"] = EVERYWHERE
        spec = replace(
            spec,
            zk_settings={**listening, **spec.zk_settings},
            broker_settings={"bindAddress": EVERYWHERE, **spec.broker_settings},
        )
        super().__init__(spec, before_brokers)

    def _java_command(self) -> list[str]:
        try:
            self._engine = DockerClient().client
            self._engine.ping()
        except DockerException as error:
            raise ClusterError(
                f"CLUSTER=docker asks for containers, but no Docker engine answers ({type(error).__name__}); start it, "
                "or leave CLUSTER out to run from jars"
            ) from None
        return ["java", "-cp", "/pulsar/lib/*"]

    def _make_spawner(self) -> Spawner:
        return ContainerSpawner(f"apachepulsar/pulsar:{self.spec.release.version}", self._published)

    def _published(self) -> list[int]:
        stores = [self._zk_port, *([self._zk_secure_port] if self.spec.secure else [])]
        return stores + [port for broker in self.brokers for port in (broker.web_port, broker.service_port)]

    def _bookie_listens(self) -> bool:
        """Return whether the bookie listens in its container. The published port accepts connections before that."""
        holder = self._child("bookie").process
        assert isinstance(holder, ContainerHandle)
        return holder.succeeds(["bash", "-c", f"exec 3<>/dev/tcp/{HOST}/{self._bookie_port}"])

    def _open_groups(self) -> None:
        """Store only which version of cgroups the engine uses, because the engine creates the groups."""
        if self.spec.cpu_quota_cores is not None:
            second = str(self._engine.info().get("CgroupVersion")) == "2"
            self._groups = CpuGroups("cgroup-v2" if second else "cgroup-v1")

    def _limit_cpu(self, child: Child, cores: float) -> None:
        child.cpu_quota_cores = cores
