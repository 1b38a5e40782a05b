"""Reads the topic in which brokers publish their usage of ResourceGroups (PIP-82).

The topic is non-persistent, so a reader receives only new messages. Each broker repeats all of its usage within six
publishing periods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bundlekeel.model.errors import CodecError
from bundlekeel.ports import Clock, FeedStatus
from bundlekeel.pulsar.topics.process import TopicsProcess
from bundlekeel.pulsar.topics.wire import Live, Lost, Message, Opened, Topic
from bundlekeel.quotas.ports import ReceivedUsage, UsageTables
from bundlekeel.quotas.published.protobuf_usage import decode_usage
from bundlekeel.quotas.published.usage_messages import ResourceGroupUsage

_USAGE_TOPIC: Final[tuple[Topic, ...]] = ("usage",)
# The values of stopped brokers are kept, as in Pulsar. If there are more brokers than this, the one with the oldest
# message is dropped.
MOST_BROKERS: Final = 1000


class TopicUsageFeed:
    """Implements `ports.UsageFeed` with its own process of the Pulsar client.

    A client that cannot read this topic is restarted occasionally. In a shared process this would interrupt load data
    and the ownership channel, too.
    """

    topics = _USAGE_TOPIC

    def __init__(self, process: TopicsProcess, *, clock: Clock, most_brokers: int = MOST_BROKERS) -> None:
        self._process = process
        self._clock = clock
        self._most = most_brokers
        self._latest: dict[str, Mapping[str, ReceivedUsage]] = {}
        self._fault = ""
        self._live = self._started = False
        self._lost = ""
        self._since_ms = 0

    # --- UsageFeed ---------------------------------------------------------------------------------------

    async def start(self, service_urls: Sequence[str]) -> None:
        """Start to listen; see `ports.UsageFeed`."""
        self._started = True
        self._process.start(self, service_urls)

    def tables(self) -> UsageTables:
        """Return the newest tables; never raises."""
        return UsageTables(latest=dict(self._latest), status=self._status(), fault=self._fault)

    def _status(self) -> FeedStatus:
        status = FeedStatus(since_ms=self._since_ms)
        if not self._started:
            return status
        if self._process.state != "ok":
            return replace(status, state=self._process.state, detail=self._process.detail)
        if self._live:
            return replace(status, state="ok")
        return replace(status, state="down" if self._lost else "connecting", detail=self._lost)

    async def close(self) -> None:
        """Stop listening, drop all data, and end the client's process."""
        self._started = False
        await self._process.stop(self)
        self.child_ended()
        self._latest, self._fault, self._since_ms = {}, "", 0

    # --- Listener ----------------------------------------------------------------------------------------

    def received(self, line: Opened | Live | Lost | Message) -> None:
        """Handle a message or a change of the connection, from the Pulsar client's process (see `TopicsListener`)."""
        match line:
            case Message():
                self._take(line)
            case Live():
                self._live, self._lost, self._since_ms = True, "", self._clock.wall_ms()
            case Lost(_, detail):
                self._live, self._lost = False, detail
            case Opened():
                self._live = False

    def child_ended(self) -> None:
        """Handle the end of the Pulsar client's process (see `TopicsListener`)."""
        self._live, self._lost = False, ""

    def state_changed(self) -> None:
        """Do nothing, because `tables` reads the state of the client's process when needed."""

    # ------------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        """Store the usage in one message, or the fault of an unusable message."""
        if message.data is None:
            self._fault = f"the message has {message.size} bytes"
            return
        try:
            message_usage = decode_usage(message.data)
        except CodecError as error:
            self._fault = str(error)
            return
        now, before = self._clock.wall_ms(), self._latest.pop(message_usage.broker, {})
        # Add the broker at the end of the dictionary, so that the first one has the oldest message.
        self._latest[message_usage.broker] = {
            usage.group: _after(before.get(usage.group), usage, now) for usage in message_usage.groups
        }
        if len(self._latest) > self._most:
            del self._latest[next(iter(self._latest))]


def _after(before: ReceivedUsage | None, usage: ResourceGroupUsage, now: int) -> ReceivedUsage:
    latest = before or ReceivedUsage()
    if usage.publish is not None:
        latest = replace(latest, publish=usage.publish, publish_ms=now)
    if usage.dispatch is not None:
        latest = replace(latest, dispatch=usage.dispatch, dispatch_ms=now)
    return latest
