"""Ports of the extensible load manager (PIP-192): its load-data topics and its ownership channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bundlekeel.model.channel_states import RejectedUnit, ServiceUnit
from bundlekeel.model.extensible import BrokerLoadData, BundleLoads

FeedState = Literal["off", "connecting", "ok", "stuck", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestLoad:
    """The newest load data of one broker with the extensible load manager. Times are Unix ms; 0: never.

    `load_ms`, `bundles_ms`: arrival of `load` and `bundles` in this process. `withdrawn_ms`: time at which the broker
    deleted its load data (because a bundle came or left); 0: it has sent new data since. The deleted data stay here.
    `fault`: (code, detail) if the last message was unusable.
    """

    load: BrokerLoadData | None = None
    bundles: BundleLoads | None = None
    load_ms: int = 0
    bundles_ms: int = 0
    withdrawn_ms: int = 0
    fault: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedStatus:
    """Whether messages of a topic can arrive.

    `state`: `ok` while they can; `stuck`: the Pulsar client's process does not respond; `down`: that process ended or
    cannot connect (it is restarted). `detail`: the reason. `since_ms`: no message was missed since then (Unix ms).
    """

    state: FeedState = "off"
    detail: str = ""
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTables:
    """Newest load data from the two load-data topics, by broker id.

    `generation` grows with each message. If a broker is not in `latest`, it has sent nothing since `status.since_ms`;
    it can still be alive.
    """

    generation: int = 0
    latest: Mapping[str, LatestLoad] = field(default_factory=dict)
    status: FeedStatus = field(default_factory=FeedStatus)


class LoadFeed(Protocol):
    """The load-data topics of the extensible load manager (PIP-192)."""

    async def start(self, service_urls: Sequence[str]) -> None:
        """Start to listen through any of these brokers. Call it again when they change. Never waits for a broker."""

    def tables(self) -> LoadTables:
        """Return the newest load data. Never raises: `status` shows a failure, and the last values stay."""

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait for load data newer than `generation`, or a change of `FeedStatus.state`; False after `timeout` s."""

    async def close(self) -> None:
        """Stop listening and end the client's process."""


ChannelVariant = Literal["system_topic", "metadata_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelView:
    """The current ownership channel: the state of each bundle (service unit). A bundle without an entry is in Init.

    `seen_ms`: by bundle, time at which this process received its current state (Unix ms). `rejected`: the newest
    messages that the brokers' conflict rules reject, oldest first (at most 100).
    """

    generation: int
    variant: ChannelVariant
    units: Mapping[str, ServiceUnit]
    seen_ms: Mapping[str, int] = field(default_factory=dict)
    rejected: tuple[RejectedUnit, ...] = ()
    wall_ms: int = 0


class Channel(Protocol):
    """The ownership channel of the extensible load manager, read only: in a system topic or in the metadata store."""

    async def start(self, service_urls: Sequence[str]) -> None:
        """Start to follow the channel without waiting. The metadata-store variant needs no URLs."""

    async def view(self) -> ChannelView:
        """Return the newest view of the channel.

        Raises SnapshotError until the channel was read completely once, and StoreError while it cannot be followed.
        """

    async def unit(self, bundle: str) -> ServiceUnit | None:
        """Return one bundle's entry, after all changes from before this call were processed.

        Raises StoreError if that takes longer than the adapter's time limit.
        """

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait for a view newer than `generation`. Returns False after `timeout` seconds."""

    async def close(self) -> None:
        """Stop following the channel."""
