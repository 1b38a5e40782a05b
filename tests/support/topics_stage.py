"""A `TopicsProcess` whose children print scripted lines (`scripted_child`), and both ports over it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bundlekeel.model.channel_states import ServiceUnit, UnitState
from bundlekeel.pulsar.topics.channel import TopicChannel
from bundlekeel.pulsar.topics.feed import TopicLoadFeed
from bundlekeel.pulsar.topics.process import TopicsOptions, TopicsProcess
from bundlekeel.pulsar.topics.wire import FromChild, Message, Topic, encode
from tests.support.contracts.coordination import eventually
from tests.support.memory_source import RealClock
from tests.support.service_units import encode_service_unit

SCRIPTED = Path(__file__).with_name("scripted_child.py")
NOBODY = ("pulsar://127.0.0.1:1",)
BUNDLE = "t/n/0x00000000_0x80000000"
OTHER = "t/n/0x80000000_0xffffffff"


def message(topic: Topic, key: str, data: bytes | None, size: int = 0) -> Message:
    """One message, published long ago."""
    return Message(topic=topic, key=key, data=data, size=size, published_ms=1000)


def entry(bundle: str, state: UnitState, destination: str = "", source: str = "", version: int = 1) -> Message:
    """One entry of the channel."""
    unit = ServiceUnit(state=state, destination=destination, source=source, version=version)
    return message("channel", bundle, encode_service_unit(unit))


def tell(path: Path, *lines: FromChild | str) -> None:
    """Write the next lines of a child, all at once: see `scripted_child`."""
    texts = [line if isinstance(line, str) else encode(line).decode().strip() for line in lines]
    path.with_suffix(".new").write_text("\n".join(texts))
    path.with_suffix(".new").rename(path)


class Stage:
    """A process whose children print the lines of `say`."""

    def __init__(self, directory: Path, *, stuck_after: float = 15.0, grace: float = 3.0) -> None:
        self.directory = directory
        self.clock = RealClock()
        self.process = TopicsProcess(
            TopicsOptions(token="s3cret", stuck_after=stuck_after, renew_after=1.0),
            clock=self.clock,
            command=(sys.executable, str(SCRIPTED), str(directory)),
        )
        self.channel = TopicChannel(self.process, clock=self.clock, grace_seconds=grace)
        self.feed = TopicLoadFeed(self.process, clock=self.clock)
        self._parts: dict[int, int] = {}

    def say(self, child: int, *lines: FromChild | str) -> None:
        """Write the next lines of this child."""
        self._parts[child] = self._parts.get(child, 0) + 1
        tell(self.directory / f"{child}.{self._parts[child]}", *lines)

    def told(self, child: int) -> str:
        """Return the first input of this child; "" before it started."""
        path = self.directory / f"{child}.setup"
        return path.read_text() if path.exists() else ""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true."""
        await eventually(condition, within=60)

    async def owner(self, bundle: str) -> str | None:
        """Wait until the view has an owner of `bundle`, and return it."""
        unit = (await eventually(self.channel.view, within=60)).units.get(bundle)
        return None if unit is None else unit.destination


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    value = Stage(tmp_path)
    yield value
    await value.channel.close()
    await value.feed.close()
