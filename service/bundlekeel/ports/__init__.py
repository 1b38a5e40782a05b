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
from bundlekeel.model.extensible import BundleLoads
from bundlekeel.model.load import BrokerEndpoint, BrokerReport, BundleAverages, ExcludedBroker, Floats, Owner, TopicLoad
from bundlekeel.model.members import Member
from bundlekeel.model.migration import StoreMigration
from bundlekeel.model.policies import IsolationPolicy
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
    """The clocks.

    Deadlines use `boot`, which also counts time of a suspended host. Stored or displayed times use `wall_ms`.
    """

    def boot(self) -> float:
        """Return seconds on the boot clock (CLOCK_BOOTTIME)."""

    def wall_ms(self) -> int:
        """Return Unix time in ms.

        It never jumps: changes of the wall clock after the start of this process are ignored.
        """

    async def sleep(self, seconds: float) -> None:
        """Wait. Tests advance a virtual clock instead."""


# --- the picture -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RawClusterView:
    """A view of the cluster: the decoded records of a load source at one time.

    `mode`: `modular`, `extensible`, `other` (Simple or Noop) or `mixed`. `reports`: usable reports, sorted by broker
    id. `excluded`: registered brokers without a usable record. `endpoints`: every registered broker. `generation`:
    grows with each change. `awaited`: brokers whose load is an estimate now, and will be known in a few seconds.
    """

    wall_ms: int
    boot: float
    generation: int
    mode: str
    reports: tuple[BrokerReport, ...]
    excluded: tuple[ExcludedBroker, ...] = ()
    endpoints: Mapping[str, BrokerEndpoint]
    awaited: tuple[str, ...] = ()


class LoadSource(Protocol):
    """Source of the brokers' load."""

    async def start(self) -> None:
        """Start watching. Returns once watches are requested, even if the store is unreachable."""

    async def picture(self) -> RawClusterView:
        """Return the latest view of the cluster, with the time of each report (`dated`).

        Raises SnapshotError before the first view, and StoreError while the connection is lost.
        """

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait until a view newer than `generation` exists. Returns False after `timeout` seconds."""

    async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
        """Return the stored averages of these bundles: from bundle-data, or else from resource quotas.

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
    """Policies in the stores.

    `isolation`: in the order of Pulsar's map. `failure_domains`: brokers by domain. `anti_affinity`: group by
    namespace. `unreadable`: namespaces whose own record is unusable or has not been read yet.
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
        """Return the persistent topics of the bundle from metadata: full names, partitions included. May be empty."""

    async def tenants(self) -> list[str]:
        """Return all tenants, sorted, including those without namespaces."""

    async def namespaces(self) -> list[str]:
        """Return all namespaces (`tenant/ns`), sorted. Reads every tenant."""

    async def policies(self, cluster: str, namespaces: Sequence[str]) -> PolicyRecords:
        """Return isolation policies and failure domains of a Pulsar cluster, and anti-affinity groups of these
        namespaces.

        This is cheap enough for every cycle: a record is read again only after a change. Raises StoreError or
        CodecError if a record that concerns all namespaces cannot be read.
        """

    async def migration(self) -> StoreMigration:
        """Read the current state of a migration of the metadata store (PIP-454), and watch it from then on.

        Raises StoreError if the store does not respond.
        """

    @property
    def migration_now(self) -> StoreMigration:
        """The state of the migration as last read, without a request.

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
    """One change of a node in a fenced write.

    `data`: new content; None: delete the node. `version`: required version; -1: any. `create`: create the node.
    """

    path: str
    data: bytes | None
    version: int = -1
    create: bool = False


class Coordination(Protocol):
    """Seats, leadership and shared state under `/bundlekeel/{cluster}`.

    Paths are relative to that root, e.g. `state/ledger`. While the connection is suspended every call raises StoreError
    immediately instead of waiting in the library's queue.
    """

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as the library knows."""

    @property
    def obstacle(self) -> str:
        """Known reason why there is no connection; empty: none is known."""

    @property
    def session_seconds(self) -> float:
        """The *negotiated* session time-out; 0.0 before the first session."""

    async def start(self) -> None:
        """Start connecting in the background. Never raises for an unreachable store."""

    async def take_seat(self, member: Member, *, seats: int) -> Member | None:
        """Occupy the lowest free seat. Returns the member with `seat` set; None: all seats are occupied."""

    async def members(self) -> list[Member]:
        """Return the members that have a seat, by seat."""

    async def leader(self) -> Member | None:
        """Return the leader, with its epoch, or None."""

    async def campaign(self, member: Member) -> int | None:
        """Try to become leader: create the leader node and advance the epoch in one transaction.

        Returns the new epoch; None: another sidecar leads.
        """

    async def still_leading(self, epoch: int) -> bool:
        """Return whether this session owns the leader node and the epoch is still `epoch`; one round trip."""

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
        """Apply all changes or none, and only if this process still leads in `epoch`.

        Raises LeadershipLost if the epoch is over, StaleWrite if a version did not match.
        """

    async def write_shared(self, path: str, data: bytes, *, version: int | None) -> int:
        """Replace a node if it still has `version` (None: create it). Any replica may do that. Returns the new version.

        Raises StaleWrite if the version does not match.
        """

    async def create_sequential(self, path: str, data: bytes) -> str:
        """Create `path` + a sequence number (a request for the leader). Returns the full relative path."""

    async def paths(self) -> list[str]:
        """Return the paths of all nodes below the root, children first; empty: the root is missing."""

    async def erase(self, paths: Sequence[str]) -> None:
        """Delete these nodes and the root; all or none. The paths must be those of all existing nodes.

        Raises StaleWrite if nodes were added or removed meanwhile, because a sidecar started or stopped.
        """

    async def wait_changed(self, timeout: float) -> bool:
        """Wait for a change of leader, seats, operators' requests or connection.

        Returns False after `timeout` seconds.
        """

    async def close(self) -> None:
        """Close the session, which ends seat and leadership, and disconnect."""


# --- the brokers ---------------------------------------------------------------------------------------


class BrokerAdmin(Protocol):
    """Read access to the admin REST API of the brokers. Calls that change a cluster are in `ports.commands`."""

    def set_endpoints(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Set the current brokers: the only hosts that are called, directly or by a redirect."""

    async def runtime_configuration(self, broker_id: str) -> dict[str, str]:
        """Return the effective settings of that broker (GET, harmless)."""

    async def dynamic_configuration(self) -> dict[str, str]:
        """Return the dynamic overrides stored for the cluster (GET, harmless)."""

    async def topics_of_bundle(self, bundle: str, owner: str) -> list[str]:
        """Return the full names of the topics of a bundle, from its owner (`topicHashPositions`, harmless)."""

    async def topic_loads(self, bundle: str, owner: str) -> list[TopicLoad]:
        """Return the topics of a bundle with hash, traffic and sessions, from its owner (harmless), sorted by name.

        A topic without statistics has no traffic.
        """

    async def bundle_loads(self, broker_id: str) -> BundleLoads:
        """Return all bundles of that broker with traffic and counts (`/admin/v2/broker-stats/topics`, harmless,
        streamed).

        The values are as old as the broker's last statistics run.
        """

    async def cpu_load(self, broker_id: str) -> float:
        """Return the used share of the broker's CPU, 0 to 1, from its JVM (`/admin/v2/broker-stats/mbeans`, harmless).

        Raises AdminFault if the JVM does not report it.
        """

    async def cpu_seconds(self, broker_id: str) -> float:
        """Return the CPU seconds that a broker's process has used since its start (`mbeans`, harmless).

        Raises AdminFault if its JVM does not report them."""

    async def client_signs(self, broker_id: str) -> ClientSigns:
        """Return latency and failures of that broker's clients (`/admin/v2/broker-stats/metrics`, harmless).

        Failed lookups come from `/metrics/`, and are omitted if that page is not available. Raises AdminRefused,
        without a request, for brokers with the extensible load manager: a request would advance their averages.
        """

    async def owned_bundles(self, broker_id: str, cluster: str) -> list[str]:
        """Return all bundles that a broker owns, sorted, also those without topics; asked at this broker (harmless).

        `cluster`: the name of the Pulsar cluster (`clusterName`).
        """

    async def close(self) -> None:
        """Close pooled connections."""


class TopicCounters(Protocol):
    """Counters of brokers' topics, from the brokers themselves or from a Prometheus server."""

    async def counters(self, broker: BrokerEndpoint) -> Sequence[CounterReading]:
        """Return the newest counters of that broker, and earlier ones if available, oldest first; never empty.

        Raises AdminApiError, for example AdminFault if the broker reports no topics or too much data.
        """


# --- records and signals ---------------------------------------------------------------------------------------


class Journal(Protocol):
    """Append-only record of events: one JSON line per cycle and one per move."""

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record durably. Never raises: a full disk is counted and logged, and balancing continues.

        On disk the members `prev`, `hash`, `torn` and `lost` belong to the hash chain. Members of a record with these
        names are dropped.
        """

    def tail(self, limit: int, *, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the newest records, oldest first."""

    def since(self, wall_ms: int) -> list[dict[str, Any]]:
        """Return the stored records since that time (Unix ms), oldest first. May read files: call it in a thread."""

    def close(self) -> None:
        """Flush and close."""


class Telemetry(Protocol):
    """Counters and gauges. Names and help are in the adapter (docs/reference/metrics.md is generated from it)."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""

    def time(self, name: str, seconds: float, **labels: str) -> None:
        """Observe a duration."""

    def table(self, name: str, rows: Sequence[str], values: Floats, columns: Sequence[str] = ()) -> None:
        """Set all series of a gauge. `rows`: values of its first label; `columns`: those of its second; NaN: no series.

        The series are created only when they are read, because a thousand brokers have many.
        """

    def retain(self, name: str, label: str, values: set[str]) -> None:
        """Drop the series of a gauge whose label value is not in `values`, for example of brokers that left."""

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition and its content type. Any thread may call it."""

    def content_type(self, accept: str) -> str:
        """Return the content type of `render` for this `Accept` header."""


class Peers(Protocol):
    """Client of the other sidecars' APIs.

    A follower forwards dry runs and questions about topics to the leader. A plan is stored only by the sidecar that
    computed it, so others read it there.
    """

    async def make_plan(self, url: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send POST /api/v1/plans to a sidecar. Raises StoreError if it does not respond."""

    async def plan(self, url: str, hash_: str) -> dict[str, Any] | None:
        """Return a plan that a sidecar computed and still stores, or None. Raises StoreError if it does not respond."""

    async def get(self, url: str, path: str) -> Any:
        """Return a sidecar's response to GET `/api/v1/PATH`; None: 404. Raises StoreError if it does not respond."""

    async def close(self) -> None:
        """Close pooled connections."""
