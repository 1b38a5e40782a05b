"""The topic in which brokers publish their usage of ResourceGroups (PIP-82).

It is non-persistent: a reader receives messages from then on, and each broker repeats all of its usage within six
periods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bundlekeel.adapters.topics.process import TopicsProcess
from bundlekeel.adapters.topics.wire import Live, Lost, Message, Opened, Topic
from bundlekeel.codec.resource_usage import decode_usage
from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.quotas.published_usage import ResourceGroupUsage
from bundlekeel.ports import Clock
from bundlekeel.ports.quotas import ReceivedUsage, UsageTables

_USAGE_TOPIC: Final[tuple[Topic, ...]] = ("usage",)
# Brokers that are gone are kept, as Pulsar does; beyond so many the one that has not published for longest is dropped.
MOST_BROKERS: Final = 1000


class TopicUsageFeed:
    """`ports.UsageFeed` through a `TopicsProcess` of its own: a client that cannot read this topic is started anew now
    and then, which must not take the load data and the ownership channel along."""

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
        """Begin to listen; see `ports.UsageFeed`."""
        self._started = True
        self._process.start(self, service_urls)

    def tables(self) -> UsageTables:
        """The newest tables; never raises."""
        found = UsageTables(latest=dict(self._latest), since_ms=self._since_ms, fault=self._fault)
        if not self._started:
            return found
        if self._process.state != "ok":
            return replace(found, state=self._process.state, detail=self._process.detail)
        if self._live:
            return replace(found, state="ok")
        return replace(found, state="down" if self._lost else "connecting", detail=self._lost)

    async def close(self) -> None:
        """Stop listening and forget; the process ends."""
        self._started = False
        await self._process.stop(self)
        self.gone()
        self._latest, self._fault, self._since_ms = {}, "", 0

    # --- Listener ----------------------------------------------------------------------------------------

    def received(self, line: Opened | Live | Lost | Message) -> None:
        """See Listener."""
        match line:
            case Message():
                self._take(line)
            case Live():
                self._live, self._lost, self._since_ms = True, "", self._clock.wall_ms()
            case Lost(_, detail):
                self._live, self._lost = False, detail
            case Opened():
                self._live = False

    def gone(self) -> None:
        """See Listener."""
        self._live, self._lost = False, ""

    def state_changed(self) -> None:
        """See Listener; `tables` asks."""

    # ------------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        """Enter one message; one that cannot be used changes nothing else."""
        if message.data is None:
            self._fault = f"the message has {message.size} bytes"
            return
        try:
            said = decode_usage(message.data)
        except CodecError as error:
            self._fault = str(error)
            return
        now, before = self._clock.wall_ms(), self._latest.pop(said.broker, {})
        # Last in order, so that the first is the one that has not published for longest.
        self._latest[said.broker] = {told.group: _after(before.get(told.group), told, now) for told in said.groups}
        if len(self._latest) > self._most:
            del self._latest[next(iter(self._latest))]


def _after(before: ReceivedUsage | None, told: ResourceGroupUsage, now: int) -> ReceivedUsage:
    found = before or ReceivedUsage()
    if told.publish is not None:
        found = replace(found, publish=told.publish, publish_ms=now)
    if told.dispatch is not None:
        found = replace(found, dispatch=told.dispatch, dispatch_ms=now)
    return found
