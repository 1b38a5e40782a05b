"""The load report of a broker, as arrays. `pulsar.formats` creates it; averages and snapshot use it.

Source: Pulsar `LocalBrokerData`, `NamespaceBundleStats`, `ResourceUsage`: CPU in percent of one core, direct memory in
MiB, bandwidth in kilobit/s, rates in msg/s and bytes/s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns of a resource matrix. The last two exist only through capacity overrides: Pulsar reports no limit.
RESOURCES: Final = ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out", "msg_rate", "throughput")
CPU, DIRECT_MEMORY, BANDWIDTH_IN, BANDWIDTH_OUT, MSG_RATE, THROUGHPUT = range(6)
REPORTED_RESOURCES: Final = 4

# Columns of a traffic matrix: msg/s, msg/s, bytes/s, bytes/s.
RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT = range(4)
TRAFFIC: Final = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")

# Columns of the count matrix of a bundle.
TOPICS, CONSUMERS, PRODUCERS = range(3)

KILOBIT_PER_BYTE: Final = 8 / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """Load report of one broker (`/loadbalance/brokers/{brokerId}` in the modular load manager).

    `usage` and `limit`: shape (4,), columns of `RESOURCES`. `traffic`: shape (4,), columns of `TRAFFIC`, sums over the
    bundles. `bundle_traffic`: shape (n, 4); `bundle_counts`: shape (n, 3), topics, consumers, producers. `last_update`,
    `start_timestamp`: Unix ms by the broker's clock. They only identify a report and a start of the broker, and are not
    compared with other clocks. `written_ms`: when the report was written, by this process's clock; 0: at `last_update`.
    `clock_ahead_ms`: how far the broker's clock was ahead of this process's clock, negative: behind. `faults`: (code,
    field) of each value that was missing or invalid and was replaced.

    `interval_ms`: 0: the broker reported the values itself; they can be a statistics interval older than `last_update`.
    Otherwise the values were computed from Prometheus counters (model/counters.py), and this is their maximum age at
    `last_update`.

    `cores`: CPU cores the broker may use, 0: not reported, None: `limit` contains them. `used_cores`: CPU cores that
    the broker's container or host uses, 0 if unknown or if `cores` is None. `least_usage`: for extensible brokers,
    whose `usage` contains a score instead of the CPU: used share of the most used resource except the CPU.
    """

    broker_id: str
    usage: Floats
    limit: Floats
    traffic: Floats
    last_update: int
    start_timestamp: int = 0
    num_topics: int = 0
    bundle_names: tuple[str, ...] = ()
    bundle_traffic: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    bundle_counts: Ints = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    load_manager: str = ""
    version: str = ""
    faults: tuple[tuple[str, str], ...] = ()
    interval_ms: int = 0
    cores: float | None = None
    used_cores: float = 0.0
    least_usage: float = 0.0
    written_ms: int = 0
    clock_ahead_ms: int = 0

    @property
    def updated_ms(self) -> int:
        """Return the time at which the report was written, Unix ms by the clock of this process."""
        return self.written_ms or self.last_update

    @property
    def started_ms(self) -> int:
        """Return the start of the broker, Unix ms by the clock of this process."""
        return self.start_timestamp - self.clock_ahead_ms


def dated(report: BrokerReport, written_ms: int) -> BrokerReport:
    """Return the report with the time at which it was written: `written_ms`, Unix ms by the clock of this process."""
    return replace(report, written_ms=written_ms, clock_ahead_ms=report.last_update - written_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedBroker:
    """A live broker that is not balanced, because its load report cannot be used. `code`, `detail`: the reason."""

    broker_id: str
    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleAverages:
    """Short-term and long-term averages of one bundle's traffic, with their numbers of samples (Pulsar's `BundleData`).

    `short`, `long`: columns of `TRAFFIC`.
    """

    bundle: str
    short: tuple[float, float, float, float]
    long: tuple[float, float, float, float]
    short_samples: int
    long_samples: int
    topics: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoad:
    """Load of one topic, as its broker reports it.

    `traffic`: columns of `TRAFFIC`. `sessions`: producers plus consumers.
    """

    topic: str
    hash: int
    traffic: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    sessions: int = 0


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    """One of the `advertisedListeners` of a broker.

    `service_url`: the address in the response to a lookup that names this listener; "" for HTTP only.
    """

    name: str
    service_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """Addresses of a registered broker. Redirects of the admin API are followed to these hosts only.

    `persistent_topics_enabled`, `non_persistent_topics_enabled`: used for extensible brokers only; modular brokers
    report them.
    """

    broker_id: str
    web_url: str
    web_url_tls: str = ""
    service_url: str = ""
    service_url_tls: str = ""
    load_manager: str = ""
    version: str = ""
    start_timestamp: int = 0
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    listeners: tuple[AdvertisedListener, ...] = ()

    def client_url(self, *, tls: bool) -> str:
        """Return the broker's address for Pulsar clients; "": no address.

        With `tls`, the encrypted address is preferred, else the unencrypted one.
        """
        first, second = (self.service_url_tls, self.service_url) if tls else (self.service_url, self.service_url_tls)
        return first or second


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Present owner of a bundle, from the ownership record. `disabled`: the bundle is being unloaded."""

    broker_id: str
    disabled: bool = False
    web_url: str = ""
    service_url: str = ""
    listeners: tuple[AdvertisedListener, ...] = ()
