"""What one broker reports of itself, as columns. Made by the codec, read by averages and snapshot.

Source: Pulsar `LocalBrokerData`, `NamespaceBundleStats`, `ResourceUsage`: CPU in percent of one core, direct
memory in MiB, bandwidth in kilobit/s, rates in msg/s and bytes/s.
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
    """One broker's own report (`/loadbalance/brokers/{brokerId}` in the modular load manager).

    `usage` and `limit`: shape (4,), columns of `RESOURCES`. `traffic`: shape (4,), sums over the bundles.
    `bundle_traffic`: shape (n, 4); `bundle_counts`: shape (n, 3), topics, consumers, producers.
    `last_update`, `start_timestamp`: Unix ms by the broker's clock. They name a report and a life of the broker, and
    are compared with nothing else. `written_ms`: when it was written, by this process's clock, 0: at `last_update`.
    `clock_ahead_ms`: how far the broker's clock was ahead of this process's, negative: behind.
    `faults` names what had to be imputed: (code, field) pairs. `interval_ms`: 0 for the broker's own figures, which may
    be a statistics interval older than `last_update`; else they come from counters (core/model/counters.py) and none is
    older than so much before it. `cores`: CPU cores the broker may use, 0 when not told, None: `limit` says.
    `least_usage`: share of the most used resource besides the CPU, where `usage` has a score in place of the CPU
    (extensible).

    `used_cores`: CPU cores that the broker's container or host uses, 0 if unknown or if `cores` is None.
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
    web_url: str = ""
    web_url_tls: str = ""
    service_url: str = ""
    faults: tuple[tuple[str, str], ...] = ()
    interval_ms: int = 0
    cores: float | None = None
    used_cores: float = 0.0
    least_usage: float = 0.0
    written_ms: int = 0
    clock_ahead_ms: int = 0

    @property
    def updated_ms(self) -> int:
        """Return the time of its writing, Unix ms by the clock of this process."""
        return self.written_ms or self.last_update

    @property
    def started_ms(self) -> int:
        """Return the start of the broker, Unix ms by the clock of this process."""
        return self.start_timestamp - self.clock_ahead_ms


def dated(report: BrokerReport, written_ms: int) -> BrokerReport:
    """Return a report as decoded, with the time of its writing by the clock of this process."""
    return replace(report, written_ms=written_ms, clock_ahead_ms=report.last_update - written_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedBroker:
    """A registered broker whose report could not be used, and why; it is alive, but takes no part."""

    broker_id: str
    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleAverages:
    """One bundle's `BundleData` (PIP-364 and the modular load manager): short and long term, with samples."""

    bundle: str
    short: tuple[float, float, float, float]
    long: tuple[float, float, float, float]
    short_samples: int
    long_samples: int
    topics: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoad:
    """One topic of a bundle as its owner reports it: hash, traffic (columns of `TRAFFIC`), producers plus consumers."""

    topic: str
    hash: int
    traffic: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    sessions: int = 0


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    """One of a broker's `advertisedListeners`: the address that lookups give to clients that ask with its name, ""
    for a listener of HTTP only."""

    name: str
    service_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """Where a registered broker's admin API listens; redirects go to these hosts only. Clients use `service_url`.

    What kinds of topics it serves is read here of extensible brokers alone: modular ones say so in their report."""

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
        """Where a client connects, "" for nowhere; with both addresses the encrypted one if `tls`."""
        first, second = (self.service_url_tls, self.service_url) if tls else (self.service_url, self.service_url_tls)
        return first or second


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who owns a bundle now, from the ownership record; `disabled` while it is being unloaded."""

    broker_id: str
    disabled: bool = False
    web_url: str = ""
    service_url: str = ""
    listeners: tuple[AdvertisedListener, ...] = ()
