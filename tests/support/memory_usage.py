"""`ports.UsageFeed` in memory, and the bytes of the brokers' messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bundlekeel.ports import Clock, FeedState, FeedStatus
from bundlekeel.quotas.ports import ReceivedUsage, UsageTables
from bundlekeel.quotas.published.usage_messages import PassedUsage, ResourceGroupUsage, UsageMessage


class MemoryUsageFeed:
    """A feed that is `ok` as soon as it is started. `urls`: what it was started with, each time."""

    def __init__(self, clock: Clock) -> None:
        self.urls: list[tuple[str, ...]] = []
        self._clock = clock
        self._tables = UsageTables()

    # --- what a test may do --------------------------------------------------------------------------------

    def say(self, message: UsageMessage) -> None:
        """Publish a message of a broker. It is lost while the feed is not `ok`."""
        if self._tables.status.state != "ok":
            return
        earlier, now, after = (
            self._tables.latest.get(message.broker, {}),
            self._clock.wall_ms(),
            dict[str, ReceivedUsage](),
        )
        for group in message.groups:
            usage = earlier.get(group.group, ReceivedUsage())
            if group.publish is not None:
                usage = replace(usage, publish=group.publish, publish_ms=now)
            if group.dispatch is not None:
                usage = replace(usage, dispatch=group.dispatch, dispatch_ms=now)
            after[group.group] = usage
        self._tables = replace(self._tables, latest={**self._tables.latest, message.broker: after})

    def spoil(self, why: str) -> None:
        """Publish a message that cannot be used. `why`: the reason."""
        self._tables = replace(self._tables, fault=why)

    def become(self, state: FeedState, detail: str = "") -> None:
        """The client's process is stuck, down, or well again."""
        since = self._clock.wall_ms() if state == "ok" else self._tables.status.since_ms
        self._tables = replace(self._tables, status=FeedStatus(state=state, detail=detail, since_ms=since))

    # --- UsageFeed -----------------------------------------------------------------------------------------

    async def start(self, service_urls: Sequence[str]) -> None:
        self.urls.append(tuple(service_urls))
        if self._tables.status.state == "off":
            self.become("ok")

    def tables(self) -> UsageTables:
        return self._tables

    async def close(self) -> None:
        self._tables = UsageTables()


# --- protobuf ------------------------------------------------------------------------------------------------


def usage_message(broker: str, **groups: tuple[PassedUsage | None, PassedUsage | None]) -> UsageMessage:
    """Return a broker's message about groups: (published, delivered) by name."""
    usages = tuple(
        ResourceGroupUsage(group=name, publish=sides[0], dispatch=sides[1]) for name, sides in groups.items()
    )
    return UsageMessage(broker=broker, groups=usages)


def encode_usage(message: UsageMessage) -> bytes:
    """Encode a message as Pulsar's brokers do."""
    parts = [field(1, message.broker.encode())]
    for group in message.groups:
        sides = {2: group.publish, 3: group.dispatch}
        parts.append(field(2, field(1, group.group.encode()) + _sides(sides)))
    return b"".join(parts)


def _sides(sides: Mapping[int, PassedUsage | None]) -> bytes:
    return b"".join(
        field(number, number_field(1, passed.size) + number_field(2, passed.messages))
        for number, passed in sides.items()
        if passed is not None
    )


def number_field(number: int, value: int) -> bytes:
    """Encode a protobuf field that is a varint."""
    return varint(number << 3) + varint(value)


def field(number: int, value: bytes) -> bytes:
    """Encode a protobuf field that is text or a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Encode an integer as a protobuf varint: seven bits per byte, the lowest first."""
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])
