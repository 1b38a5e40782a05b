"""The ownership channel as a system topic (PIP-192): `persistent://pulsar/system/loadbalancer-service-unit-state`.

The topic is compacted and read from its start. Each message passes the same conflict resolver as at the brokers. A new
reader fills a new table, which replaces the old table when the reader reaches the end of the topic, so that no
incomplete table is visible.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bundlekeel.model.channel_states import ChannelTable, ServiceUnit
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, SnapshotError, StoreError
from bundlekeel.ports import ChannelView, Clock
from bundlekeel.ports.generations import Generations
from bundlekeel.pulsar.formats.channel import check_bundle, decode_service_unit
from bundlekeel.pulsar.topics.process import TopicsProcess
from bundlekeel.pulsar.topics.wire import Live, Lost, Message, Opened, Topic

_TOPICS: Final[tuple[Topic, ...]] = ("channel",)
# Time limit in which the process must report the end of the topic.
UNIT_SECONDS: Final = 5.0
# The client reconnects automatically after a lost connection. Until then the view may be this many seconds old.
GRACE_SECONDS: Final = 3.0

_log = logging.getLogger(__name__)


class TopicChannel:
    """`ports.Channel` through a `TopicsProcess`, which may be shared with a `TopicLoadFeed`.

    `grace_seconds`: time after a lost connection in which the view is still returned.
    """

    topics = _TOPICS

    def __init__(self, process: TopicsProcess, *, clock: Clock, grace_seconds: float = GRACE_SECONDS) -> None:
        self._process = process
        self._grace = grace_seconds
        self._clock = clock
        self._table = ChannelTable()
        self._shown = self._followed = False
        # The table of a new reader while it catches up; None after it has replaced the old one.
        self._reading: ChannelTable | None = None
        self._unsure_since: float | None = None
        self._lost = ""
        self._generations = Generations()
        self._view: ChannelView | None = None

    # --- Channel -----------------------------------------------------------------------------------------

    async def start(self, service_urls: Sequence[str]) -> None:
        """Start to follow the channel; see `ports.Channel`."""
        self._process.start(self, service_urls)

    async def view(self) -> ChannelView:
        """Return the newest view of the channel.

        Raises SnapshotError before the first view, StoreError while the process that reads the topic is down or stuck,
        or if the topic has not been read for some seconds.
        """
        reason = self._process.detail or self._lost
        if not self._shown:
            raise SnapshotError("the channel has not been read to its end yet" + (f": {reason}" if reason else ""))
        if self._process.state != "ok" or not self._followed:
            raise StoreError(f"the channel is not being read: {reason or 'its process starts'}")
        if self._unsure_since is not None:
            seconds = self._clock.boot() - self._unsure_since
            if seconds > self._grace:
                raise StoreError(f"the channel has not been read for {seconds:.1f} s: {reason or 'reading it again'}")
        if self._view is None or self._view.generation != self._generations.newest:
            self._view = self._build_view()
        return replace(self._view, wall_ms=self._clock.wall_ms())

    async def unit(self, bundle: str) -> ServiceUnit | None:
        """Return one bundle's entry after everything published before this call was received.

        Raises StoreError if that takes too long or the channel is not being read.
        """
        await self._process.sync(UNIT_SECONDS)
        if not self._followed:
            # The response was for the previous reader. The new one has not reached the end yet.
            raise StoreError("the channel has not been read to its end yet")
        return self._table.units.get(bundle)

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a view newer than `generation`."""
        return await self._generations.wait_newer(generation, timeout)

    async def close(self) -> None:
        """Stop following the channel. The process that reads it ends with its last listener."""
        await self._process.stop(self)
        self.child_ended()

    # --- Listener ----------------------------------------------------------------------------------------

    def received(self, line: Opened | Live | Lost | Message) -> None:
        """Handle a line of the child process; see TopicsListener."""
        match line:
            case Message():
                self._take(line)
            case Opened():
                self._reading = ChannelTable()
                self._unsure()
            case Lost(_, detail):
                self._lost = detail
                self._unsure()
            case Live():
                self._lost, self._unsure_since, self._followed = "", None, True
                if self._reading is not None:
                    self._show(self._reading)
                    self._reading = None

    def child_ended(self) -> None:
        """Handle the end of the child process; see TopicsListener."""
        self._reading = None
        self._followed = False

    def state_changed(self) -> None:
        """Do nothing; see TopicsListener."""

    # ------------------------------------------------------------------------------------------------------

    def _unsure(self) -> None:
        if self._unsure_since is None:
            self._unsure_since = self._clock.boot()

    def _take(self, message: Message) -> None:
        """Apply one message. If it is unusable, the bundle's stored entry stays, as it does at the brokers."""
        try:
            bundle, unit = check_bundle(message.key), _decoded(message)
        except CodecError as error:
            _log.warning("a message of the ownership channel cannot be read and is ignored: %s: %s", message.key, error)
            return
        if self._reading is not None:
            # The message may be old, so its publish time is used until this table replaces the other one.
            self._reading.apply(bundle, unit, message.published_ms)
            return
        self._table.apply(bundle, unit, self._clock.wall_ms())
        self._changed()

    def _show(self, fresh: ChannelTable) -> None:
        """Replace the visible table by `fresh`, which is complete. Unchanged entries keep their time of arrival."""
        now, old = self._clock.wall_ms(), self._table
        for bundle, unit in fresh.units.items():
            same = old.units.get(bundle) == unit
            fresh.seen_ms[bundle] = old.seen_ms[bundle] if same else now
        listed = [(lost.bundle, lost.unit) for lost in old.rejected]
        news = [lost for lost in fresh.rejected if (lost.bundle, lost.unit) not in listed]
        fresh.rejected.clear()
        fresh.rejected.extend([*old.rejected, *news])
        self._table, self._shown = fresh, True
        self._changed()

    def _changed(self) -> None:
        self._generations.publish()

    def _build_view(self) -> ChannelView:
        return ChannelView(
            generation=self._generations.newest,
            variant="system_topic",
            units=dict(self._table.units),
            seen_ms=dict(self._table.seen_ms),
            rejected=tuple(self._table.rejected),
            wall_ms=self._clock.wall_ms(),
        )


def _decoded(message: Message) -> ServiceUnit | None:
    if message.data is None:
        raise CodecError(f"it has {message.size} bytes", code=Code.REPORT_TOO_LARGE)
    return decode_service_unit(message.data) if message.data else None
