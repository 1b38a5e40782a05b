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
    """The newest load data of one extensible broker. Wall-clock times in ms; 0: never.

    `load_ms`, `bundles_ms`: times of arrival here. `withdrawn_ms`: time at which the broker deleted its load data (with
    a tombstone, because a bundle came or left), if it sent none since; its earlier data are kept. `fault`: (code,
    detail) if the last message was unusable.
    """

    load: BrokerLoadData | None = None
    bundles: BundleLoads | None = None
    load_ms: int = 0
    bundles_ms: int = 0
    withdrawn_ms: int = 0
    fault: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedStatus:
    """Whether messages of a feed can arrive.

    `state`: `ok` while they can; `stuck`: the client's process does not respond; `down`: it ended or cannot connect (it
    is restarted). `detail`: the reason. `since_ms`: start of listening without a gap.
    """

    state: FeedState = "off"
    detail: str = ""
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTables:
    """Contents of the two load-data topics so far, by broker id.

    `generation` grows with each message. A broker that is not in `latest` may have had nothing to report since
    `status.since_ms`.
    """

    generation: int = 0
    latest: Mapping[str, LatestLoad] = field(default_factory=dict)
    status: FeedStatus = field(default_factory=FeedStatus)


class LoadFeed(Protocol):
    """The load-data topics of the extensible load manager (PIP-192)."""

    async def start(self, service_urls: Sequence[str]) -> None:
        """Start to listen through any of these brokers. Called again when they change. Never waits for a broker."""

    def tables(self) -> LoadTables:
        """Return the newest tables. Never raises: `status` shows that a feed is down, and its last values stay."""

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait until there are newer tables than `generation` or `state` changed. Returns False after `timeout` s."""

    async def close(self) -> None:
        """Stop listening and end the client's process."""


ChannelVariant = Literal["system_topic", "metadata_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelView:
    """The current ownership channel (service unit states), by bundle. A bundle without an entry is in state Init.

    `seen_ms`: by bundle, time of arrival of its current state here (Unix ms). `rejected`: the newest messages that the
    brokers' conflict rules reject, oldest first (at most 100).
    """

    generation: int
    variant: ChannelVariant
    units: Mapping[str, ServiceUnit]
    seen_ms: Mapping[str, int] = field(default_factory=dict)
    rejected: tuple[RejectedUnit, ...] = ()
    wall_ms: int = 0


class Channel(Protocol):
    """The ownership channel of the extensible load manager, read only; both variants implement it."""

    async def start(self, service_urls: Sequence[str]) -> None:
        """Start to follow the channel (the metadata-store variant needs no URLs). Never waits for a broker or the
        store.
        """

    async def view(self) -> ChannelView:
        """Return the newest view.

        Raises SnapshotError until the channel was read completely once, and StoreError while it cannot be followed.
        """

    async def unit(self, bundle: str) -> ServiceUnit | None:
        """Return one bundle's entry, after everything published before this call was processed.

        Raises StoreError if that takes longer than the adapter's time limit.
        """

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait for a view newer than `generation`. Returns False after `timeout` seconds."""

    async def close(self) -> None:
        """Stop following the channel."""
