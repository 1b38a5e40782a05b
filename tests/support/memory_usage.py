"""`ports.UsageFeed` in memory, and the bytes in which brokers say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bundlekeel.core.quotas.published_usage import PassedUsage, ResourceGroupUsage, UsageMessage
from bundlekeel.ports import Clock, FeedState
from bundlekeel.ports.quotas import ReceivedUsage, UsageTables


class MemoryUsageFeed:
    """A feed that is `ok` as soon as it is started. `urls`: what it was started with, each time."""

    def __init__(self, clock: Clock) -> None:
        self.urls: list[tuple[str, ...]] = []
        self._clock = clock
        self._tables = UsageTables()

    # --- what a test may do --------------------------------------------------------------------------------

    def say(self, message: UsageMessage) -> None:
        """A broker speaks; nobody hears it while the feed is not `ok`."""
        if self._tables.state != "ok":
            return
        known, now, after = (
            self._tables.latest.get(message.broker, {}),
            self._clock.wall_ms(),
            dict[str, ReceivedUsage](),
        )
        for told in message.groups:
            heard = known.get(told.group, ReceivedUsage())
            if told.publish is not None:
                heard = replace(heard, publish=told.publish, publish_ms=now)
            if told.dispatch is not None:
                heard = replace(heard, dispatch=told.dispatch, dispatch_ms=now)
            after[told.group] = heard
        self._tables = replace(self._tables, latest={**self._tables.latest, message.broker: after})

    def spoil(self, why: str) -> None:
        """A message that cannot be used."""
        self._tables = replace(self._tables, fault=why)

    def become(self, state: FeedState, detail: str = "") -> None:
        """The client's process is stuck, down, or well again."""
        since = self._clock.wall_ms() if state == "ok" else self._tables.since_ms
        self._tables = replace(self._tables, state=state, detail=detail, since_ms=since)

    # --- UsageFeed -----------------------------------------------------------------------------------------

    async def start(self, service_urls: Sequence[str]) -> None:
        self.urls.append(tuple(service_urls))
        if self._tables.state == "off":
            self.become("ok")

    def tables(self) -> UsageTables:
        return self._tables

    async def close(self) -> None:
        self._tables = UsageTables()


# --- protobuf ------------------------------------------------------------------------------------------------


def usage_message(broker: str, **groups: tuple[PassedUsage | None, PassedUsage | None]) -> UsageMessage:
    """What a broker says of groups: (published, delivered) by name."""
    told = tuple(ResourceGroupUsage(group=name, publish=sides[0], dispatch=sides[1]) for name, sides in groups.items())
    return UsageMessage(broker=broker, groups=told)


def encode_usage(message: UsageMessage) -> bytes:
    """As Pulsar's brokers write it."""
    parts = [field(1, message.broker.encode())]
    for told in message.groups:
        sides = {2: told.publish, 3: told.dispatch}
        parts.append(field(2, field(1, told.group.encode()) + _sides(sides)))
    return b"".join(parts)


def _sides(sides: Mapping[int, PassedUsage | None]) -> bytes:
    return b"".join(
        field(number, number_field(1, passed.size) + number_field(2, passed.messages))
        for number, passed in sides.items()
        if passed is not None
    )


def number_field(number: int, value: int) -> bytes:
    """A field that is a varint."""
    return varint(number << 3) + varint(value)


def field(number: int, value: bytes) -> bytes:
    """A field that is text or a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
