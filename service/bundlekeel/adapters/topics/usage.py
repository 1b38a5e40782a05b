"""The topic in which brokers tell each other what passes of ResourceGroups (PIP-82).

It is non-persistent: who listens hears what comes from then on; each broker says all of it within six periods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bundlekeel.adapters.topics.process import TopicsProcess
from bundlekeel.adapters.topics.wire import Live, Lost, Message, Opened, Topic
from bundlekeel.codec.usage import decode_usage
from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.quotas.native import ResourceGroupUsage
from bundlekeel.ports import Clock
from bundlekeel.ports.quotas import ReceivedUsage, UsageTables

_TOPICS: Final[tuple[Topic, ...]] = ("usage",)
# Brokers that are gone are kept, as Pulsar does; beyond so many the one not heard for longest is dropped.
MOST_BROKERS: Final = 1000


class TopicUsageFeed:
    """`ports.UsageFeed` through a `TopicsProcess` of its own: a client that cannot read this topic is started anew now
    and then, which must not take the load data and the ownership channel along."""

    topics = _TOPICS

    def __init__(self, process: TopicsProcess, *, clock: Clock, most_brokers: int = MOST_BROKERS) -> None:
        self._process = process
        self._clock = clock
        self._most = most_brokers
        self._heard: dict[str, Mapping[str, ReceivedUsage]] = {}
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
        found = UsageTables(heard=dict(self._heard), since_ms=self._since_ms, fault=self._fault)
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
        self._heard, self._fault, self._since_ms = {}, "", 0

    # --- Listener ----------------------------------------------------------------------------------------

    def heard(self, line: Opened | Live | Lost | Message) -> None:
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
        now, before = self._clock.wall_ms(), self._heard.pop(said.broker, {})
        # Last in order, so that the first is the one not heard for longest.
        self._heard[said.broker] = {told.group: _after(before.get(told.group), told, now) for told in said.groups}
        if len(self._heard) > self._most:
            del self._heard[next(iter(self._heard))]


def _after(before: ReceivedUsage | None, told: ResourceGroupUsage, now: int) -> ReceivedUsage:
    found = before or ReceivedUsage()
    if told.publish is not None:
        found = replace(found, publish=told.publish, publish_ms=now)
    if told.dispatch is not None:
        found = replace(found, dispatch=told.dispatch, dispatch_ms=now)
    return found
