"""Protocols between the daemon and the world. Adapters implement them; tests implement them in memory.

Every call that leaves the process is a coroutine with a time limit inside the adapter, raises only errors
of `core.model.errors`, and never blocks the event loop. A fake passes the same contract tests as the real adapter
(tests/support/contracts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from bundlekeel.core.channel.states import RejectedUnit
from bundlekeel.core.guard.rate import ClientSigns
from bundlekeel.core.model.counters import CounterReading
from bundlekeel.core.model.doc import Answer, Doc
from bundlekeel.core.model.extensible import BundleLoads
from bundlekeel.core.model.load import (
    BrokerEndpoint,
    BrokerReport,
    BundleAverages,
    ExcludedBroker,
    Floats,
    Owner,
    TopicLoad,
)
from bundlekeel.core.model.migration import StoreMigration
from bundlekeel.core.model.policies import IsolationPolicy
from bundlekeel.ports.extensible import (
    Channel,
    ChannelVariant,
    ChannelView,
    FeedState,
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
    """Time as a port. Deadlines use `boot` (goes on during suspend); moments that are stored, compared or shown use
    `wall_ms`."""

    def boot(self) -> float:
        """Seconds on the boot clock (CLOCK_BOOTTIME)."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC, by the wall clock as it was when this process began; never jumps."""

    async def sleep(self, seconds: float) -> None:
        """Wait; tests advance a virtual clock instead."""


# --- the picture -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RawClusterView:
    """What a load source saw at one moment, decoded.

    `mode` is `modular`, `extensible`, `other` (Simple or Noop) or `mixed`. `reports` holds the usable ones,
    sorted by broker id; `excluded` the registered brokers whose record could not be used. `endpoints` holds
    every registered broker. `generation` grows with each change seen. `awaited`: brokers whose load is only guessed,
    and will be known in a few seconds.
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
    """Where brokers' load comes from."""

    async def start(self) -> None:
        """Begin watching; returns once watches are requested, even if the store is unreachable."""

    async def picture(self) -> RawClusterView:
        """Return the latest coalesced picture; its reports are `dated`.

        Raises SnapshotError before the first, StoreError while suspended.
        """

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait until a picture newer than `generation` is there (one batch window coalesced), or time out."""

    async def seeds(self, bundles: Sequence[str]) -> list[BundleAverages]:
        """Averages the brokers stored for these bundles: bundle-data first, else resource quotas; missing left out."""

    async def close(self) -> None:
        """Stop watching."""


class Ownership(Protocol):
    """The ownership truth: ephemeral `/namespace/...` nodes (modular), the ownership channel (extensible)."""

    async def owner(self, bundle: str) -> Owner | None:
        """The owner right now, read from the store (not from a cache), or None when unowned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecords:
    """What the stores say of policies. `isolation` in the order of Pulsar's map; `failure_domains`: brokers by
    domain; `anti_affinity`: group by namespace; `unreadable`: namespaces whose own record could not be used, or has
    not been read yet."""

    isolation: tuple[IsolationPolicy, ...] = ()
    failure_domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    anti_affinity: Mapping[str, str] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()


class Metadata(Protocol):
    """Read-only look at namespaces and topics in the metadata and configuration stores."""

    async def boundaries(self, namespace: str) -> list[int] | None:
        """Sorted bundle boundaries of a namespace (first 0, last 2^32-1), or None when it does not exist."""

    async def partitions(self, topic: str) -> int:
        """Number of partitions of a topic (full name); 0 when it is not partitioned or unknown."""

    async def metadata_leader(self) -> str | None:
        """The broker id of Pulsar's own load-manager leader, or None."""

    async def topics(self, bundle: str) -> list[str]:
        """Known persistent topics of the bundle from metadata (full names, partitions included); may be empty."""

    async def tenants(self) -> list[str]:
        """All tenants, sorted, those without namespaces too."""

    async def namespaces(self) -> list[str]:
        """All namespaces (`tenant/ns`), sorted; reads every tenant."""

    async def policies(self, cluster: str, namespaces: Sequence[str]) -> PolicyRecords:
        """Isolation policies and failure domains of a Pulsar cluster, anti-affinity groups of these namespaces.

        Cheap enough for every cycle: a record is read again only after it has changed. StoreError, CodecError when
        what concerns all namespaces cannot be read.
        """

    async def migration(self) -> StoreMigration:
        """Read the state of a migration of the metadata store (PIP-454), linearised, and watch it from then on. Raises
        StoreError."""

    @property
    def migration_now(self) -> StoreMigration:
        """The state as last read, without a request. Its phase is CHANGED from a change of the record until the next
        `migration`, and NOT_STARTED before the first."""

    async def close(self) -> None:
        """Close what it opened by itself."""


# --- coordination and shared state -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Answer):
    """A sidecar as it describes itself in its seat node and, while it leads, in the leader node."""

    id: Annotated[str, Doc("the name of the sidecar")]
    url: Annotated[str, Doc("the address of its API; empty: unknown")] = ""
    version: Annotated[str, Doc("the release it runs")] = ""
    started_ms: Annotated[int, Doc("when its process began")] = 0
    seat: Annotated[int, Doc("its seat; -1: none")] = -1
    epoch: Annotated[int, Doc("of its term as leader; -1: it does not lead")] = -1
    settings: Annotated[
        str, Doc("digest of its settings without what is of its host alone; the same at all sidecars; empty: unknown")
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A node below our root: its bytes and data version."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChange:
    """One step of a fenced write. `data` None deletes; `version` -1 means any; creates when `create` is set."""

    path: str
    data: bytes | None
    version: int = -1
    create: bool = False


class Coordination(Protocol):
    """Seats, leadership and shared state under `/bundlekeel/{cluster}`.

    Paths are relative to that root, e.g. `state/ledger`. While the connection is suspended every call raises
    StoreError at once instead of waiting in the library's queue.
    """

    @property
    def connected(self) -> bool:
        """Whether the session is alive as far as the library knows."""

    @property
    def obstacle(self) -> str:
        """What prevents a connection, as far as is known; empty: nothing is known."""

    @property
    def session_seconds(self) -> float:
        """The *negotiated* session time-out; 0.0 before the first session."""

    async def start(self) -> None:
        """Begin connecting in the background; never raises for an unreachable store."""

    async def take_seat(self, member: Member, *, seats: int) -> Member | None:
        """Occupy the lowest free seat; returns the member with `seat` set, or None when all are taken."""

    async def members(self) -> list[Member]:
        """Who sits where, by seat."""

    async def leader(self) -> Member | None:
        """Who leads, with its epoch, or None."""

    async def campaign(self, member: Member) -> int | None:
        """Create the leader node and advance the epoch in one transaction: the new epoch; None when somebody leads."""

    async def still_leading(self, epoch: int) -> bool:
        """One round trip to the store: the leader node is ours (this session) and the epoch is still `epoch`."""

    async def resign(self, epoch: int) -> None:
        """Delete our leader node if it is ours; quiet when it is not."""

    async def read(self, path: str) -> Document | None:
        """A node, linearised with our own writes; None when absent."""

    async def read_tree(self, path: str) -> list[Document]:
        """The direct children of a node with their data, sorted by path; empty when absent."""

    async def stamps(self, paths: Sequence[str]) -> list[int | None]:
        """Of each node a number that is another one after every write of it, linearised with our own writes; None when
        absent. No data is read."""

    async def write_fenced(self, epoch: int, changes: Sequence[DocumentChange]) -> None:
        """Apply all changes or none, and only while `epoch` is current. LeadershipLost when it is over, StaleWrite
        when a version did not match."""

    async def write_shared(self, path: str, data: bytes, *, version: int | None) -> int:
        """Compare-and-set by any replica: version None creates; returns the new version. StaleWrite on a race."""

    async def create_sequential(self, path: str, data: bytes) -> str:
        """Create `path` + a sequence number (a request left for the leader); returns the full relative path."""

    async def paths(self) -> list[str]:
        """Every node below the root, those below others first; empty where there is no root. Nothing is made."""

    async def erase(self, paths: Sequence[str]) -> None:
        """Delete these nodes, all that there are, and the root with them; all or none. StaleWrite when they are not all
        any more: a sidecar has started, or gone."""

    async def wait_changed(self, timeout: float) -> bool:
        """Wait until leader, seats, desired state, requests or the connection state changed, or time out."""

    async def close(self) -> None:
        """Give up seat and leadership (by closing the session) and disconnect."""


# --- the brokers ---------------------------------------------------------------------------------------


class BrokerAdmin(Protocol):
    """The admin REST API of the brokers, as far as it is read; what changes a cluster is in `ports.commands`."""

    def set_endpoints(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """The brokers known right now: the only hosts that are ever called or followed to."""

    async def runtime_configuration(self, broker_id: str) -> dict[str, str]:
        """Effective settings of that broker (GET, harmless)."""

    async def dynamic_configuration(self) -> dict[str, str]:
        """Dynamic overrides stored for the cluster (GET, harmless)."""

    async def topics_of_bundle(self, bundle: str, owner: str) -> list[str]:
        """Full names of the topics of a bundle, asked at its owner (`topicHashPositions`, harmless)."""

    async def topic_loads(self, bundle: str, owner: str) -> list[TopicLoad]:
        """The same topics with hash, traffic and sessions, asked at the owner (harmless), sorted by name. A topic
        without statistics carries nothing."""

    async def bundle_loads(self, broker_id: str) -> BundleLoads:
        """All bundles that broker serves with traffic and counts (`/admin/v2/broker-stats/topics`, harmless, streamed);
        figures are as old as the broker's last statistics run."""

    async def cpu_load(self, broker_id: str) -> float:
        """Used share of the CPU a broker may use, 0..1, as its JVM says (`/admin/v2/broker-stats/mbeans`, harmless).
        AdminFault when it does not tell."""

    async def cpu_seconds(self, broker_id: str) -> float:
        """Return the CPU seconds that a broker's process has used since its start (`mbeans`, harmless).

        Raises AdminFault if its JVM does not report them."""

    async def client_signs(self, broker_id: str) -> ClientSigns:
        """How that broker's clients fare (`/admin/v2/broker-stats/metrics`; failed lookups by `/metrics/`, left out
        where that is not answered): harmless with the modular load manager. AdminRefused where the extensible one runs:
        the requests would advance its averages, so they do not leave."""

    async def owned_bundles(self, broker_id: str, cluster: str) -> list[str]:
        """Every bundle that broker owns, sorted, with those that have no topics; asked at the broker (harmless).
        `cluster`: the name of the Pulsar cluster (`clusterName`)."""

    async def close(self) -> None:
        """Close pooled connections."""


class TopicCounters(Protocol):
    """Counters of brokers' topics, from the brokers themselves or from who collects them."""

    async def counters(self, broker: BrokerEndpoint) -> Sequence[CounterReading]:
        """The newest counters of that broker, and the ones before where those are at hand, older first; never empty.
        AdminApiError, such as AdminFault when it tells of no topics, or more than is read."""


# --- records and signals ---------------------------------------------------------------------------------------


class Journal(Protocol):
    """Append-only record of what was done: one JSON line a cycle and one a move."""

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record durably. Never raises: a full disk is counted and said, balancing goes on. On disk the
        members `prev`, `hash`, `torn` and `lost` are the hash chain's: a record's own of these names are left out."""

    def tail(self, limit: int, *, kind: str | None = None) -> list[dict[str, Any]]:
        """The newest records, oldest first."""

    def since(self, wall_ms: int) -> list[dict[str, Any]]:
        """Records from then on, oldest first, as far back as they are kept. May read files: call it in a thread."""

    def close(self) -> None:
        """Flush and close."""


class Telemetry(Protocol):
    """Counters and gauges; names and help live in the adapter (docs/reference/metrics.md is made from it)."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""

    def time(self, name: str, seconds: float, **labels: str) -> None:
        """Observe a duration."""

    def table(self, name: str, rows: Sequence[str], values: Floats, columns: Sequence[str] = ()) -> None:
        """Set all series of a gauge at once. `rows`: values of its first label; `columns`: those of its second, where
        it has two; NaN: no series. Made into series when they are read, for a thousand brokers have many."""

    def retain(self, name: str, label: str, values: set[str]) -> None:
        """Drop a gauge's series whose label value is not among these: brokers come and go."""

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its content type. Any thread may call it."""

    def content_type(self, accept: str) -> str:
        """The content type that `render` returns for this `Accept` header."""


class Peers(Protocol):
    """The other sidecars' APIs: a follower passes dry runs and questions about topics on to the leader; a plan is
    found where it was made."""

    async def make_plan(self, url: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """POST /api/v1/plans at a sidecar; StoreError when it does not answer."""

    async def plan(self, url: str, hash_: str) -> dict[str, Any] | None:
        """A plan that a sidecar made itself and still keeps, or None; StoreError when it does not answer."""

    async def quota_why(self, url: str, topic: str) -> dict[str, Any] | None:
        """Why a topic passes what it passes, as a sidecar knows it itself, or None; StoreError when it does not
        answer."""

    async def close(self) -> None:
        """Close pooled connections."""
