"""Run a real Pulsar cluster from jars: one ZooKeeper, one bookie, N brokers, all on loopback."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from dev.cluster import conf, probe
from dev.cluster.cgroups import CpuGroups, open_groups
from dev.cluster.jars import ensure_jars
from dev.cluster.ports import free_ports
from dev.cluster.process import Child, Spawner
from dev.cluster.secure import Security
from dev.cluster.spec import BrokerInfo, ClusterError, ClusterSpec, CpuIsolation, broker_info
from dev.identity import Identity
from dev.java import find_java, no_java

BeforeBrokers = Callable[[list[BrokerInfo]], None]

ZOOKEEPER_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
SETUP_MAIN = "org.apache.pulsar.PulsarClusterMetadataSetup"
BOOKIE_MAIN = "org.apache.bookkeeper.server.Main"
BROKER_MAIN = "org.apache.pulsar.PulsarBrokerStarter"

HOST = "127.0.0.1"
ZOOKEEPER_READY_SECONDS = 30.0
BROKER_READY_SECONDS = 90.0
# A broker's own limit is 5 s (brokerShutdownTimeoutMs); it needs a little to notice.
STOP_SECONDS = 7.0


class Cluster:
    """A Pulsar cluster, as a context manager. Once started, any thread can use it."""

    # Host of all brokers. None: each broker has its own host, which isolation policies need.
    _bind_host: str | None = None

    def __init__(self, spec: ClusterSpec, before_brokers: BeforeBrokers | None = None) -> None:
        """Prepare a cluster; no process runs before ``start``.

        ``before_brokers`` is called with the brokers' addresses after ZooKeeper and the bookie have started and before
        any broker starts. It can open proxies on the advertised hosts.
        """
        self.spec = spec
        self.brokers: list[BrokerInfo] = []
        self._before_brokers = before_brokers
        self._children: dict[str, Child] = {}
        self._groups = CpuGroups()
        self._spawner = self._make_spawner()
        self._root: Path | None = None
        self._security: Security | None = None
        self._zk_port = 0
        self._zk_secure_port = 0
        self._bookie_port = 0
        self._java: list[str] = []

    # --- addresses -------------------------------------------------------------------------

    @property
    def zk_hosts(self) -> str:
        """ZooKeeper's host:port, without a chroot; the port for TLS if the cluster is secured."""
        return f"{HOST}:{self._zk_secure_port or self._zk_port}"

    @property
    def metadata_url(self) -> str:
        """URL of the local metadata store, with its chroot."""
        return f"zk:{self.zk_hosts}{'/pulsar' if self.spec.chroots else ''}"

    @property
    def configuration_url(self) -> str:
        """URL of the configuration store, with its chroot."""
        return f"zk:{self.zk_hosts}{'/config' if self.spec.chroots else ''}"

    @property
    def service_url(self) -> str:
        """Return a binary-protocol URL that lists every broker."""
        scheme = "pulsar+ssl" if self.spec.secure else "pulsar"
        return f"{scheme}://" + ",".join(b.service_url.partition("://")[2] for b in self.brokers)

    @property
    def security(self) -> Security:
        """Certificates, tokens and users of a secured cluster."""
        if self._security is None:
            raise ClusterError("the cluster is not secure, or was not started")
        return self._security

    @property
    def cpu_isolation(self) -> CpuIsolation:
        """Return how the brokers' CPU quota is enforced; "none": it is not enforced, or there is no quota."""
        return self._groups.isolation

    @property
    def data_dir(self) -> Path:
        """Directory for configuration, data and logs of this run."""
        if self._root is None:
            raise ClusterError("the cluster was not started")
        return self._root

    @property
    def zk_audit_log(self) -> Path:
        """ZooKeeper's audit log: one line per change with session, user, path and result."""
        return self.data_dir / "logs" / "zookeeper-audit.log"

    @property
    def names(self) -> list[str]:
        """The names of all processes, in starting order."""
        return list(self._children)

    # --- life ------------------------------------------------------------------------------

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all processes and return when they are ready.

        Raises ClusterError with the process that failed, its last error lines and the path of its log. In that case it
        stops all processes and keeps the logs.
        """
        if self._root is not None:
            raise ClusterError("the cluster was started before; create a new Cluster")
        self._java = self._java_command()
        self._root = self._prepare_root()
        try:
            self._start_all()
        except BaseException as error:
            self._stop_children()
            # The logs explain a failure; after Ctrl-C nothing needs an explanation.
            self._spawner.close(clean=not isinstance(error, Exception))
            raise

    def stop(self) -> None:
        """Stop every process (SIGTERM, then SIGKILL), remove cgroups and temporary data; idempotent."""
        self._stop_children()
        self._spawner.close(clean=True)

    def _start_all(self) -> None:
        self._choose_addresses()
        self._open_groups()
        temporary = self._root if self.spec.data_dir is None else None
        self._spawner.start_janitor(temporary, self.data_dir / "logs", self._groups.parents)
        self._start_zookeeper()
        if not self.brokers:
            return
        self._initialise_metadata()
        self._start_bookie()
        if self._before_brokers is not None:
            self._before_brokers(list(self.brokers))
        for broker in self.brokers:
            self._start_broker(broker)
        self._wait_for_brokers(self.brokers)

    def _stop_children(self) -> None:
        """Stop brokers, then the bookie, then ZooKeeper, so that each process can deregister before it ends."""
        children = list(self._children.values())
        for tier in ([c for c in children if c.name.startswith("broker-")], children[1:2], children[:1]):
            for child in tier:
                child.ask_to_stop()
            for child in tier:
                child.wait_or_kill(STOP_SECONDS)

    # --- one process by name ---------------------------------------------------------------

    def pid(self, name: str) -> int:
        """Return the pid of a running process."""
        return self._child(name).running().pid

    def alive(self, name: str) -> bool:
        """Return whether the process runs; True for a paused process."""
        return self._child(name).alive

    def paused(self, name: str) -> bool:
        """Return whether the process was paused by ``pause``."""
        return self._child(name).paused

    def failures(self) -> dict[str, ClusterError]:
        """Return, for each process that no longer runs, an error with the end of its log."""
        return {name: child.failure("has ended") for name, child in self._children.items() if not child.alive}

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self._child(name).log

    def kill(self, name: str) -> None:
        """Send SIGKILL to a process and wait until its pid is gone."""
        self._child(name).kill()

    def pause(self, name: str) -> None:
        """Send SIGSTOP to a process: it keeps its sockets and does not respond."""
        self._child(name).send(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Send SIGCONT to a paused process."""
        self._child(name).send(signal.SIGCONT)

    def terminate(self, name: str, grace_seconds: float = STOP_SECONDS) -> None:
        """Send SIGTERM to a process and wait for its end; after `grace_seconds`, send SIGKILL."""
        child = self._child(name)
        child.ask_to_stop()
        child.wait_or_kill(grace_seconds)

    def restart(self, name: str) -> None:
        """Stop a process (if it runs), start it with the same ports and data, wait until ready."""
        self.terminate(name)
        child = self._child(name)
        self._spawner.start(child)
        if name == "zookeeper":
            self._wait_for_zookeeper(child)
        elif name == "bookie":
            self._wait_for_bookie(child)
        else:
            self._wait_for_brokers([broker for broker in self.brokers if broker.name == name])

    def _child(self, name: str) -> Child:
        try:
            return self._children[name]
        except KeyError:
            names = ", ".join(self._children) or "none, the cluster is not started"
            raise ClusterError(f"no process is called {name!r}; known: {names}") from None

    # --- how processes run; ContainerCluster overrides these methods -----------------------

    def _java_command(self) -> list[str]:
        release = self.spec.release
        java = find_java(release.oldest_java)
        if java is None:
            raise ClusterError(no_java(release.oldest_java))
        return [str(java), "-cp", f"{ensure_jars(release)[0].parent}/*"]

    def _make_spawner(self) -> Spawner:
        return Spawner()

    def _bookie_listens(self) -> bool:
        return probe.accepts(HOST, self._bookie_port)

    def _limit_cpu(self, child: Child, cores: float) -> None:
        child.cgroup_files = self._groups.create(child.name, cores)

    # --- steps of the start ----------------------------------------------------------------

    def _prepare_root(self) -> Path:
        root = self.spec.data_dir
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="bundlekeel-cluster-"))
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            # Ports and cookies of an earlier run would not match this one.
            raise ClusterError(f"the data directory {root} is not empty; name an empty or a new one")
        for name in ("logs", "conf"):
            (root / name).mkdir()
        return root.resolve()

    def _choose_addresses(self) -> None:
        count = self.spec.brokers
        self._zk_port, self._bookie_port, secure_port, *rest = free_ports(3 + 2 * count)
        self.brokers = [
            broker_info(
                number,
                rest[2 * number - 2],
                rest[2 * number - 1],
                self.spec.advertise,
                secure=self.spec.secure,
                bind_host=self._bind_host,
            )
            for number in range(1, count + 1)
        ]
        if self.spec.secure:
            self._zk_secure_port = secure_port
            self._security = Security(self.data_dir / "secure", [broker.bind_host for broker in self.brokers])

    def _open_groups(self) -> None:
        if self.spec.cpu_quota_cores is None:
            return
        self._groups = open_groups()
        if self._groups.isolation == "none":
            print(
                "cluster: warning: cgroups are not writable here, so brokers run without a CPU quota "
                "(cpu_isolation=none); use capacity overrides to make broker sizes differ",
                file=sys.stderr,
                flush=True,
            )

    def _conf_file(self, name: str, text: str) -> Path:
        path = self.data_dir / "conf" / name
        path.write_text(text)
        return path

    def _add(self, name: str, main: str, arguments: Iterable[str], flags: list[str]) -> Child:
        log_conf = self._conf_file(
            f"{name}-log4j2.xml", conf.log4j2_xml(self.zk_audit_log if name == "zookeeper" else None)
        )
        java, *class_path = self._java
        command = [java, *flags, f"-Dlog4j2.configurationFile={log_conf}", *class_path, main, *arguments]
        child = Child(name, command, self.data_dir / "logs" / f"{name}.log", self.data_dir)
        if name.startswith("broker-") and self.spec.cpu_quota_cores is not None:
            self._limit_cpu(child, self.spec.cpu_quota_cores)
        self._children[name] = child
        self._spawner.start(child)
        return child

    def _start_zookeeper(self) -> None:
        data = self.data_dir / "zookeeper"
        data.mkdir()
        secure = self._security.zookeeper_settings(self._zk_secure_port) if self._security else None
        config = self._conf_file("zoo.cfg", conf.zookeeper_conf(self.spec, data, self._zk_port, secure))
        flags = conf.jvm_flags(heap_mb=192, direct_mb=64) + (self._security.zookeeper_flags() if self._security else [])
        flags.append(f"-Dzookeeper.audit.enable={str(self.spec.zk_audit).lower()}")
        self._wait_for_zookeeper(self._add("zookeeper", ZOOKEEPER_MAIN, [str(config)], flags))

    def _wait_for_zookeeper(self, child: Child) -> None:
        probe.wait_until(lambda: probe.zookeeper_serves(HOST, self._zk_port), child, ZOOKEEPER_READY_SECONDS)

    def _initialise_metadata(self) -> None:
        """Write the metadata of the cluster and its first namespaces, and format BookKeeper's metadata."""
        arguments = [
            *("--cluster", self.spec.cluster_name),
            *("--metadata-store", self.metadata_url),
            *("--configuration-metadata-store", self.configuration_url),
            # Pulsar requires both URLs without TLS, even if no port without TLS is open.
            *("--web-service-url", self.brokers[0].web_url.replace("https:", "http:")),
            *("--broker-service-url", self.service_url.replace("pulsar+ssl:", "pulsar:")),
        ]
        if self.spec.secure:
            arguments += ["--web-service-url-tls", self.brokers[0].web_url]
            arguments += ["--broker-service-url-tls", self.service_url]
        flags = [*conf.jvm_flags(heap_mb=192, direct_mb=64), *self._store_flags]
        child = self._add("metadata-setup", SETUP_MAIN, arguments, flags)
        child.wait_or_kill(BROKER_READY_SECONDS)
        del self._children["metadata-setup"]
        if child.process is None or child.process.poll() != 0:
            raise child.failure("could not initialise the cluster's metadata")

    def _start_bookie(self) -> None:
        config = conf.bookie_conf(self.data_dir / "bookie", self._bookie_port, self.metadata_url)
        arguments = ["--conf", str(self._conf_file("bookkeeper.conf", config))]
        flags = [
            *conf.jvm_flags(heap_mb=256, direct_mb=conf.BOOKIE_DIRECT_MB),
            *conf.BOOKIE_DRIVERS,
            *self._store_flags,
        ]
        self._wait_for_bookie(self._add("bookie", BOOKIE_MAIN, arguments, flags))

    def _wait_for_bookie(self, child: Child) -> None:
        # A bookie listens only after its registration, which takes as long as the start of a broker on a busy machine.
        probe.wait_until(self._bookie_listens, child, BROKER_READY_SECONDS)

    def _start_broker(self, broker: BrokerInfo) -> None:
        secure = self._security.broker_settings(broker.web_port, broker.service_port) if self._security else None
        text = conf.broker_conf(self.spec, broker, self.metadata_url, self.configuration_url, secure)
        arguments = ["--broker-conf", str(self._conf_file(f"{broker.name}.conf", text))]
        heap, direct = self.spec.broker_memory_mb
        flags = [*conf.jvm_flags(heap_mb=heap, direct_mb=direct), *self._store_flags]
        self._add(broker.name, BROKER_MAIN, arguments, flags)

    @property
    def _store_flags(self) -> list[str]:
        return self._security.store_client_flags() if self._security else []

    def identity(self, role: str) -> Identity | None:
        """Return the credentials of a role, such as "admin"; None if the cluster has no authentication."""
        if self._security is None:
            return None
        return Identity(str(self._security.tokens[role]), str(self._security.ca))

    @property
    def _broker_ready_seconds(self) -> float:
        """Return the time limit in seconds for a broker's start: longer with a CPU quota, as a start needs 6 s of
        CPU.
        """
        return BROKER_READY_SECONDS + 10.0 / (self.spec.cpu_quota_cores or 10.0)

    def _wait_for_brokers(self, brokers: Iterable[BrokerInfo]) -> None:
        """Wait until these brokers are ready, and each of them lists all live brokers of the cluster."""
        running = [b for b in self.brokers if self.alive(b.name) and not self._child(b.name).paused]
        expected = {b.broker_id for b in running}
        caller = self.identity("admin")
        for broker in brokers:
            host, port = broker.bind_host, broker.web_port
            child = self._child(broker.name)

            def joined(host: str = host, port: int = port) -> bool:
                return probe.broker_ready(host, port, caller) and expected <= probe.brokers_listed(
                    host, port, self.spec.cluster_name, caller
                )

            probe.wait_until(joined, child, self._broker_ready_seconds)
