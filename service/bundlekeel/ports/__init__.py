"""Protocols (ports) for everything outside of the process: clock, metadata store, brokers, journal, metrics.

Adapters implement these ports, and tests implement them in memory. Each call that leaves the process is a coroutine
with a time limit in the adapter. It raises only errors of `model.errors`, and never blocks the event loop. A fake
passes the same contract tests as the real adapter (tests/support/contracts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bundlekeel.model.channel_states import RejectedUnit
from bundlekeel.model.counters import CounterReading
from bundlekeel.model.double_service import ServedTwice
from bundlekeel.model.extensible import BundleLoads
from bundlekeel.model.load import BrokerEndpoint, BrokerReport, BundleAverages, ExcludedBroker, Floats, Owner, TopicLoad
from bundlekeel.model.members import Member
from bundlekeel.model.migration import StoreMigration
from bundlekeel.model.policies import IsolationPolicy
from bundlekeel.model.scalable import Segment
from bundlekeel.planning.guard.rate import ClientSigns
from bundlekeel.ports.extensible import (
    Channel,
    ChannelVariant,
    ChannelView,
    FeedState,
    FeedStatus,
    LatestLoad,
    LoadFeed,
    LoadTables,
)

__all__ = [
    "BrokerAdmin",
    "BrokerEndpoint",
    "Channel",
    "ChannelVariant",
    "ChannelView",
    "Clock",
    "Coordination",
    "Document",
    "DocumentChange",
    "FeedState",
    "FeedStatus",
    "Journal",
    "LatestLoad",
    "LoadFeed",
    "LoadSource",
    "LoadTables",
    "Member",
    "Metadata",
    "Owner",
    "Ownership",
    "Peers",
    "PolicyRecords",
    "RawClusterView",
    "RejectedUnit",
    "StoreMigration",
    "Telemetry",
    "TopicCounters",
    "TopicLoad",
]


class Clock(Protocol):
    """Time of this process.

    Deadlines use `boot`, which also counts time of a suspended host. Stored or displayed times use `wall_ms`.
    """

    def boot(self) -> float:
        """Return the seconds since the machine's boot (CLOCK_BOOTTIME)."""

    def wall_ms(self) -> int:
        """Return Unix time in ms.

        It never jumps: changes of the wall clock after the start of this process are ignored.
        """

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`. Tests advance a virtual clock instead."""


# --- the view of the cluster -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RawClusterView:
    """A view of the cluster: the decoded load reports and addresses of all registered brokers at one time.

    `mode`: load manager of the brokers: `modular`, `extensible`, `other` (Simple or Noop) or `mixed`. `reports`: usable
    load reports, sorted by broker id. `excluded`: registered brokers without a usable report. `endpoints`: addresses by
    broker id. `generation`: grows with each change. `awaited`: brokers whose load is only an estimate for a few seconds
    more. `served_twice`: bundles with topics that two brokers serve; the leader knows them from counters.
    """

    wall_ms: int
    boot: float
    generation: int
    mode: str
    reports: tuple[BrokerReport, ...]
    excluded: tuple[ExcludedBroker, ...] = ()
    endpoints: Mapping[str, BrokerEndpoint]
    awaited: tuple[str, ...] = ()
    served_twice: tuple[ServedTwice, ...] = ()

    @property
    def bundles_served_twice(self) -> frozenset[str]:
        """Names of the bundles in `served_twice`."""
        return frozenset(item.bundle for item in self.served_twice)


class LoadSource(Protocol):
    """Source of the brokers' load."""

    async def start(self) -> None:
        """Start watching. Returns once watches are requested, even if the store is unreachable."""

    async def picture(self) -> RawClusterView:
        """Return the latest view of the cluster, with the time of each report.

        Raises SnapshotError before the first view, and StoreError while the connection is lost.
        """

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait until a view newer than `generation` exists. Returns False after `timeout` seconds."""

    async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
        """Return the traffic averages that brokers stored for these bundles (bundle-data, else resource quotas).

        Bundles without stored averages are omitted.
        """

    async def close(self) -> None:
        """Stop watching."""


class Ownership(Protocol):
    """Owners of bundles: ephemeral `/namespace/...` nodes (modular), the ownership channel (extensible)."""

    async def owner(self, bundle: str) -> Owner | None:
        """Return the current owner, read from the store and not from a cache; None: no broker owns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecords:
    """Policies that restrict the placement of bundles, from the metadata and configuration stores.

    `isolation`: isolation policies, in the order of Pulsar's map. `failure_domains`: brokers by domain.
    `anti_affinity`: group by namespace. `unreadable`: namespaces whose local policies are unusable or have not been
    read yet.
    """

    isolation: tuple[IsolationPolicy, ...] = ()
    failure_domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    anti_affinity: Mapping[str, str] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()


class Metadata(Protocol):
    """Read access to namespaces and topics in the metadata and configuration stores."""

    async def boundaries(self, namespace: str) -> list[int] | None:
        """Return the sorted bundle boundaries of a namespace (first 0, last 2^32-1); None: it does not exist."""

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic (full name); 0: it is not partitioned or unknown."""

    async def metadata_leader(self) -> str | None:
        """Return the broker id of Pulsar's own load-manager leader, or None."""

    async def topics(self, bundle: str) -> list[str]:
        """Return the bundle's topics in the metadata store: full names of persistent topics, partitions included, and
        of scalable topics and segments.
        """

    async def segments(self, topic: str) -> list[str]:
        """Return the full names of the segments of a scalable topic (full name), sorted; sealed ones included."""

    async def layouts(self) -> list[Segment]:
        """Return the segments of all scalable topics, sealed ones included."""

    async def segment_load(self, segment: Segment) -> tuple[float, float, float, float]:
        """Return the traffic of a segment as its owner stored it, columns of `model.load.TRAFFIC`; 0: unknown."""

    async def tenants(self) -> list[str]:
        """Return all tenants, sorted, including those without namespaces."""

    async def namespaces(self) -> list[str]:
        """Return all namespaces (`tenant/ns`), sorted. Reads every tenant."""

    async def policies(self, cluster: str, namespaces: Sequence[str]) -> PolicyRecords:
        """Return isolation policies and failure domains of a cluster, and anti-affinity groups of these namespaces.

        A record is read again only after a change. Raises StoreError or CodecError if a record that concerns all
        namespaces cannot be read.
        """

    async def migration(self) -> StoreMigration:
        """Read the current state of a migration of the metadata store (PIP-454), and watch it from then on.

        Raises StoreError if the store does not respond.
        """

    @property
    def migration_now(self) -> StoreMigration:
        """State of the migration at the last call of `migration`, without a request.

        After a change, its phase is CHANGED until `migration` is called again. Before the first call it is NOT_STARTED.
        """

    async def close(self) -> None:
        """Close the connections that this object opened."""


# --- coordination and shared state -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A node below Bundlekeel's root: its bytes and data version."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChange:
    """One change of a node by `write_fenced`.

    `data`: new content; None: delete the node. `version`: required version; -1: any. `create`: the node must be new.
    """

    path: str
    data: bytes | None
    version: int = -1
    create: bool = False


class Coordination(Protocol):
    """Seats (a sidecar's right to read the cluster and lead), leadership and shared state in ZooKeeper.

    Paths are relative to `/bundlekeel/{cluster}`, e.g. `state/ledger`. While the connection is suspended every call
    raises StoreError immediately instead of waiting in the library's queue.
    """

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper is connected, as far as the client library knows."""

    @property
    def obstacle(self) -> str:
        """Reason why ZooKeeper is not connected; empty: unknown, or it is connected."""

    @property
    def session_seconds(self) -> float:
        """The session time-out that ZooKeeper granted; 0.0 before the first session."""

    async def start(self) -> None:
        """Connect to ZooKeeper in the background. Never raises if it is unreachable."""

    async def take_seat(self, member: Member, *, seats: int) -> Member | None:
        """Occupy the lowest free seat (right to lead). Returns `member` with its `seat`; None: all `seats` are
        occupied."""

    async def members(self) -> list[Member]:
        """Return the sidecars that have a seat (may become leader), ordered by seat number."""

    async def leader(self) -> Member | None:
        """Return the leading sidecar with its epoch (number of its term of leadership), or None."""

    async def campaign(self, member: Member) -> int | None:
        """Try to become leader: create the leader node and advance the epoch in one transaction.

        Returns the new epoch; None: another sidecar leads.
        """

    async def still_leading(self, epoch: int) -> bool:
        """Return whether this process still leads in term `epoch`, from the store; one round trip."""

    async def resign(self, epoch: int) -> None:
        """Delete the leader node if this session owns it; otherwise do nothing."""

    async def read(self, path: str) -> Document | None:
        """Return the current content of a node, including all earlier writes of this process; None: missing."""

    async def read_tree(self, path: str) -> list[Document]:
        """Return the direct children of a node with their data, sorted by path; empty: the node is missing."""

    async def stamps(self, paths: Sequence[str]) -> list[int | None]:
        """Return for each node a number that changes with every write; None: the node is missing.

        All earlier writes of this process are included. No data are read.
        """

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        """Apply all changes or none, and only if this process still leads in term `epoch`.

        Raises LeadershipLost if that term is over, StaleWrite if a node's version did not match.
        """

    async def write_shared(self, path: str, data: bytes, *, version: int | None) -> int:
        """Replace a node if it still has `version` (None: create it). Returns the new version.

        Sidecars that do not lead may call this, too. Raises StaleWrite if the version does not match.
        """

    async def create_sequential(self, path: str, data: bytes) -> str:
        """Create a request for the leader: a node named `path` + a sequence number. Returns its relative path."""

    async def paths(self) -> list[str]:
        """Return the paths of all nodes below the root, children first; empty: the root is missing."""

    async def erase(self, paths: Sequence[str]) -> None:
        """Delete these nodes and the root, or none of them. `paths` must contain every existing node.

        Raises StaleWrite if nodes were added or removed after `paths` was read, because a sidecar started or stopped.
        """

    async def wait_changed(self, timeout: float) -> bool:
        """Wait for a change of leader, seats, operators' requests or connection; False after `timeout` seconds."""

    async def close(self) -> None:
        """Close the session, which ends seat and leadership, and disconnect."""


# --- the brokers ---------------------------------------------------------------------------------------


class BrokerAdmin(Protocol):
    """Reads through the brokers' admin REST API. They change nothing; `ports.commands` has the calls that do."""

    def set_endpoints(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Replace the brokers that may be called, directly or after a redirect. No other host is called."""

    async def runtime_configuration(self, broker_id: str) -> dict[str, str]:
        """Return the effective settings of that broker."""

    async def dynamic_configuration(self) -> dict[str, str]:
        """Return the dynamic broker settings stored for the cluster, by name."""

    async def topics_of_bundle(self, bundle: str, owner: str) -> list[str]:
        """Return the full names of the topics of a bundle, from its owner (`topicHashPositions`)."""

    async def topic_loads(self, bundle: str, owner: str) -> list[TopicLoad]:
        """Return the topics of a bundle with hash, traffic and sessions, from its owner, sorted by name.

        The traffic of a topic without statistics is 0.
        """

    async def bundle_loads(self, broker_id: str) -> BundleLoads:
        """Return all bundles of that broker with traffic and counts (`/admin/v2/broker-stats/topics`).

        The values are as old as the broker's last statistics run.
        """

    async def cpu_load(self, broker_id: str) -> float:
        """Return the used share of the broker's CPU, 0 to 1, from its JVM (`/admin/v2/broker-stats/mbeans`).

        Raises AdminFault if the JVM does not report it.
        """

    async def cpu_seconds(self, broker_id: str) -> float:
        """Return the CPU seconds that a broker's process has used since its start (`mbeans`).

        Raises AdminFault if its JVM does not report them."""

    async def client_signs(self, broker_id: str) -> ClientSigns:
        """Return latency and failures of that broker's clients (`/admin/v2/broker-stats/metrics`).

        Failed lookups come from `/metrics/`, and are omitted if that page is not available. Raises AdminRefused,
        without a request, for brokers with the extensible load manager: a request would change their load averages.
        """

    async def owned_bundles(self, broker_id: str, cluster: str) -> list[str]:
        """Return all bundles that a broker reports as its own, sorted, also bundles without topics.

        `cluster`: the name of the Pulsar cluster (`clusterName`).
        """

    async def close(self) -> None:
        """Close pooled connections."""


class TopicCounters(Protocol):
    """Counters of brokers' topics, from the brokers themselves or from a Prometheus server."""

    async def counters(self, broker: BrokerEndpoint) -> Sequence[CounterReading]:
        """Return the newest counters of that broker, and earlier counters if available, oldest first; never empty.

        Raises AdminApiError, for example AdminFault if the broker reports no topics or too much data.
        """


# --- records and signals ---------------------------------------------------------------------------------------


class Journal(Protocol):
    """Append-only record of events: one JSON line per cycle and one per move."""

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record durably. Never raises: a full disk is counted and logged, and balancing continues.

        The JSON members `prev`, `hash`, `torn` and `lost` belong to the file's hash chain, and are dropped in `record`.
        """

    def tail(self, limit: int, *, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the newest records, oldest first."""

    def since(self, wall_ms: int) -> list[dict[str, Any]]:
        """Return the stored records since that time (Unix ms), oldest first. May read files: call it in a thread."""

    def close(self) -> None:
        """Flush and close."""


class Telemetry(Protocol):
    """Counters and gauges. The adapter has their names and help, and docs/reference/metrics.md lists them."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Increase a counter by `amount`."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""

    def time(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to a histogram."""

    def table(self, name: str, rows: Sequence[str], values: Floats, columns: Sequence[str] = ()) -> None:
        """Set all series of a gauge. `rows`, `columns`: values of its first and second label; NaN: no series."""

    def retain(self, name: str, label: str, values: set[str]) -> None:
        """Drop the series of a gauge whose `label` is not in `values`, for example of brokers that left."""

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in a Prometheus text format that `accept` allows, and its content type. Thread-safe."""

    def content_type(self, accept: str) -> str:
        """Return the content type that `render` returns for this `Accept` header."""


class Peers(Protocol):
    """Client of the other sidecars' APIs.

    Followers send the leader dry runs, questions about topics, and signals of changed traffic. Only the sidecar that
    computed a plan stores it, so other sidecars read the plan there.
    """

    async def make_plan(self, url: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Let a sidecar compute a plan (POST /api/v1/plans). Raises StoreError if it does not respond."""

    async def plan(self, url: str, hash_: str) -> dict[str, Any] | None:
        """Return the stored plan with this hash from a sidecar, or None. Raises StoreError if it does not respond."""

    async def get(self, url: str, path: str) -> Any:
        """Return a sidecar's response to GET `/api/v1/PATH`; None: 404. Raises StoreError if it does not respond."""

    async def signal_load(self, url: str) -> None:
        """Signal changed traffic to the leader (POST `/api/v1/load-signals`). Raises StoreError if this fails."""

    async def close(self) -> None:
        """Close pooled connections."""
