"""The two load-data topics (PIP-192): the last load data of each extensible broker.

Both topics are non-persistent: a reader receives only new messages, and an idle broker sends none for up to 15 minutes.
So a broker without load data here may still be alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.ports import Clock, FeedState, FeedStatus, LatestLoad, LoadTables
from bundlekeel.ports.generations import Generations
from bundlekeel.pulsar.formats.extensible import decode_broker_load, decode_top_bundles
from bundlekeel.pulsar.topics.process import TopicsProcess
from bundlekeel.pulsar.topics.wire import Live, Lost, Message, Opened, Topic

_TOPICS: Final[tuple[Topic, ...]] = ("load", "bundles")


class TopicLoadFeed:
    """`ports.LoadFeed` through a `TopicsProcess`, which may be shared with a `TopicChannel`."""

    topics = _TOPICS

    def __init__(self, process: TopicsProcess, *, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self._latest: dict[str, LatestLoad] = {}
        # By broker: the topics whose last message was a tombstone, with the arrival time of the tombstone.
        self._withdrawn: dict[str, dict[Topic, int]] = {}
        self._live: set[Topic] = set()
        self._lost: dict[Topic, str] = {}
        self._since_ms = 0
        self._started = False
        self._generations = Generations()

    # --- LoadFeed ----------------------------------------------------------------------------------------

    async def start(self, service_urls: Sequence[str]) -> None:
        """Start to listen; see `ports.LoadFeed`."""
        self._started = True
        self._process.start(self, service_urls)

    def tables(self) -> LoadTables:
        """Return the newest load data of all brokers; never raises."""
        state, detail = self._state()
        return LoadTables(
            generation=self._generations.newest,
            latest=dict(self._latest),
            status=FeedStatus(state=state, detail=detail, since_ms=self._since_ms),
        )

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a message, or a change of state, after `generation`."""
        return await self._generations.wait_newer(generation, timeout)

    async def close(self) -> None:
        """Stop listening. The process ends with its last listener."""
        self._started = False
        await self._process.stop(self)
        self.child_ended()

    # --- Listener ----------------------------------------------------------------------------------------

    def received(self, line: Opened | Live | Lost | Message) -> None:
        """Handle a line of the child process; see TopicsListener."""
        match line:
            case Message():
                self._take(line)
            case Live(topic):
                self._live.add(topic)
                self._lost.pop(topic, None)
                if len(self._live) == len(_TOPICS):
                    self._since_ms = self._clock.wall_ms()
            case Lost(topic, detail):
                self._live.discard(topic)
                self._lost[topic] = detail
            case Opened(topic):
                self._live.discard(topic)
        self.state_changed()

    def child_ended(self) -> None:
        """Handle the end of the child process; see TopicsListener."""
        self._live.clear()
        self._lost.clear()

    def state_changed(self) -> None:
        """Wake all waiting tasks after a change of the process's state; see TopicsListener."""
        self._generations.publish()

    # ------------------------------------------------------------------------------------------------------

    def _state(self) -> tuple[FeedState, str]:
        if not self._started:
            return "off", ""
        if self._process.state != "ok":
            return self._process.state, self._process.detail
        if len(self._live) == len(_TOPICS):
            return "ok", ""
        if self._lost:
            return "down", "; ".join(f"{topic}: {why}" for topic, why in sorted(self._lost.items()))
        return "connecting", ""

    def _take(self, message: Message) -> None:
        """Store the load data in one message. If it is unusable, the stored load data stay."""
        broker_id, now = message.key, self._clock.wall_ms()
        before = self._latest.get(broker_id, LatestLoad())
        withdrawn = self._withdrawn.setdefault(broker_id, {})
        if message.data == b"":
            withdrawn.setdefault(message.topic, now)
            self._latest[broker_id] = replace(before, withdrawn_ms=min(withdrawn.values()))
            return
        try:
            after = _entered(before, message, now)
        except CodecError as error:
            self._latest[broker_id] = replace(before, fault=(error.code, str(error)))
            return
        withdrawn.pop(message.topic, None)
        self._latest[broker_id] = replace(after, fault=None, withdrawn_ms=min(withdrawn.values(), default=0))


def _entered(before: LatestLoad, message: Message, now: int) -> LatestLoad:
    if message.data is None:
        raise CodecError(f"the message has {message.size} bytes", code=Code.REPORT_TOO_LARGE)
    if message.topic == "load":
        return replace(before, load=decode_broker_load(message.key, message.data), load_ms=now)
    return replace(before, bundles=decode_top_bundles(message.data), bundles_ms=now)
