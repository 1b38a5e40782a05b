"""Types of the local cluster: its options, the addresses of brokers, and its error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dev.pulsar_releases import Release, find_release

Mode = Literal["modular", "extensible"]
Advertise = Literal["bind", "proxy"]
CpuIsolation = Literal["cgroup-v1", "cgroup-v2", "none"]


class ClusterError(RuntimeError):
    """An error of the local cluster; the message contains what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Options of a cluster.

    release: the release of Pulsar.
    brokers: number of brokers; 0 starts ZooKeeper alone (no bookie, no metadata).
    mode: the load manager of the brokers.
    fast_stats: brokers count traffic every second and report every small change; False: as by default (60 s).
    cpu_quota_cores: CPU quota of *each broker*, in cores; None: no cgroup. ZooKeeper and the bookie are never limited.
    broker_memory_mb: heap and direct memory of each broker. Pulsar's defaults are 2,048 and 4,096; a broker with 10,000
        topics needs these for its metrics page.
    advertise: "bind" advertises the address a broker binds (127.0.1.N); "proxy" advertises 127.0.0.(10 + N) for HTTP,
        where a proxy of the caller must already listen on the same web port (see ``before_brokers`` of ``Cluster``).
        Clients of the binary protocol always connect directly.
    broker_settings, zk_settings: lines of broker.conf and zoo.cfg; they override the lines of this package.
    data_dir: an empty or missing directory, kept after stop; None: a temporary one, which is kept only if the start
        fails.
    chroots: the metadata store is below /pulsar in ZooKeeper, the configuration store below /config. False: both are
        the whole of ZooKeeper.
    secure: TLS and tokens at the brokers with authorization on, TLS and SASL at ZooKeeper; ``Cluster.security`` has the
        certificates, tokens and users. Brokers then have no port without TLS.
    tick_time_ms: ZooKeeper's tick; sessions live between 2 and 20 ticks.
    zk_audit: ZooKeeper writes its audit log (``Cluster.zk_audit_log``).
    """

    release: Release = field(default_factory=find_release)
    brokers: int = 3
    mode: Mode = "modular"
    fast_stats: bool = True
    cpu_quota_cores: float | None = None
    broker_memory_mb: tuple[int, int] = (448, 256)
    advertise: Advertise = "bind"
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    zk_settings: Mapping[str, str] = field(default_factory=dict)
    cluster_name: str = "local"
    data_dir: Path | None = None
    tick_time_ms: int = 500
    zk_audit: bool = True
    chroots: bool = True
    secure: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.brokers <= 9:
            raise ClusterError(f"brokers must be between 0 and 9, not {self.brokers}")
        if self.mode not in ("modular", "extensible"):
            raise ClusterError(f'mode must be "modular" or "extensible", not {self.mode!r}')
        if self.advertise not in ("bind", "proxy"):
            raise ClusterError(f'advertise must be "bind" or "proxy", not {self.advertise!r}')
        if self.secure and self.advertise == "proxy":
            raise ClusterError("a secure cluster cannot be proxied: nobody else has the brokers' certificate")
        if self.cpu_quota_cores is not None and self.cpu_quota_cores < 0.05:
            raise ClusterError(f"cpu_quota_cores must be at least 0.05, not {self.cpu_quota_cores}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """The addresses of one broker. ``broker_id`` and ``web_url`` use the advertised host, as Pulsar's own records do;
    ``service_url`` uses ``bind_host``, where the broker listens with both ports.
    """

    name: str
    broker_id: str
    web_url: str
    service_url: str
    bind_host: str
    advertised_host: str
    web_port: int
    service_port: int

    @property
    def bind_web_url(self) -> str:
        """URL of the broker's own HTTP port, without a proxy."""
        return f"{self.web_url.partition(':')[0]}://{self.bind_host}:{self.web_port}"


def broker_info(
    number: int,
    web_port: int,
    service_port: int,
    advertise: Advertise,
    *,
    secure: bool = False,
    bind_host: str | None = None,
) -> BrokerInfo:
    """Return the addresses of broker ``number`` (from 1). The broker listens on ``bind_host`` (None: 127.0.1.N, where N
    is ``number``). Its advertised host for HTTP is ``bind_host`` with ``advertise="bind"``, and 127.0.0.(10 + N) with
    "proxy"."""
    web, service = ("https", "pulsar+ssl") if secure else ("http", "pulsar")
    bind_host = bind_host or f"127.0.1.{number}"
    advertised_host = bind_host if advertise == "bind" else f"127.0.0.{10 + number}"
    return BrokerInfo(
        name=f"broker-{number}",
        broker_id=f"{advertised_host}:{web_port}",
        web_url=f"{web}://{advertised_host}:{web_port}",
        service_url=f"{service}://{bind_host}:{service_port}",
        bind_host=bind_host,
        advertised_host=advertised_host,
        web_port=web_port,
        service_port=service_port,
    )
