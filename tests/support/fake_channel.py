"""Answers about the ownership channel, for API and CLI tests."""

from __future__ import annotations

from typing import Any

from bundlekeel.model.channel_states import ServiceUnit, UnitState
from bundlekeel.ports import ChannelView
from bundlekeel.pulsar.channel.channel_watch import state_counts
from bundlekeel.pulsar.channel.findings import ChannelFinding, Deadlines, FindingCode
from bundlekeel.pulsar.channel.responses import ChannelSummary, UnitView
from bundlekeel.views.channel_rows import unit_rows
from tests.support.fake_places import BROKERS

Json = dict[str, Any]

WRITTEN_MS = 1_790_000_000_000
_SPLIT = {"0x50000000_0x58000000": BROKERS[1], "0x58000000_0x60000000": ""}


def _name(index: int) -> str:
    return f"shop/orders/0x{index * 0x10000000:08x}_0x{(index + 1) * 0x10000000:08x}"


def _unit(index: int) -> ServiceUnit:
    times: Json = {"timestamp_ms": WRITTEN_MS + index, "version": index + 1}
    if index == 4:
        return ServiceUnit(state=UnitState.RELEASING, source=BROKERS[0], destination=BROKERS[2], **times)
    if index == 5:
        return ServiceUnit(state=UnitState.SPLITTING, source=BROKERS[1], children=_SPLIT, **times)
    if index == 6:
        return ServiceUnit(state=UnitState.FREE, source=BROKERS[1], **times)
    return ServiceUnit(state=UnitState.OWNED, destination=BROKERS[index % 3], **times)


VIEW = ChannelView(
    generation=7,
    variant="system_topic",
    units={_name(index): _unit(index) for index in range(8)},
    seen_ms={_name(index): WRITTEN_MS + index for index in range(8)},
    wall_ms=WRITTEN_MS + 60_000,
)


class FakeChannel:
    """A channel that is followed, with one finding: a bundle that has been releasing for too long."""

    def _called(self, name: str, argument: Any = None) -> None:
        """Record a call."""
        raise NotImplementedError

    def channel(self) -> ChannelSummary:
        """Variant, health, figures."""
        self._called("channel")
        return ChannelSummary(
            variant="system_topic",
            up=True,
            detail="",
            obstacle="",
            wall_ms=VIEW.wall_ms,
            bundles=len(VIEW.units),
            states=state_counts(VIEW),
            in_flight_oldest_seconds=60.0,
            findings={"InFlightTooLong": 1},
            rejected=0,
            deadlines=Deadlines(),
        )

    def channel_bundles(
        self,
        *,
        state: UnitState | None = None,
        broker: str | None = None,
        namespace: str | None = None,
        after: str = "",
        limit: int = 1000,
    ) -> list[UnitView]:
        """Entries, as asked."""
        query: Json = {"state": state, "broker": broker, "namespace": namespace, "after": after, "limit": limit}
        self._called("channel_bundles", query)
        return unit_rows(VIEW, VIEW.wall_ms, **query)

    def channel_findings(self) -> list[ChannelFinding]:
        """The one finding."""
        self._called("channel_findings")
        return [
            ChannelFinding(
                code=FindingCode.IN_FLIGHT_TOO_LONG,
                bundle=_name(4),
                brokers=(BROKERS[0], BROKERS[2]),
                state=UnitState.RELEASING,
                since_ms=WRITTEN_MS + 4,
                deadline_ms=WRITTEN_MS + 90_004,
                detail=f"Releasing from {BROKERS[0]} to {BROKERS[2]} for more than 30 s",
                remedy="nothing: the leader broker's monitor (every 60 s) makes a broker own it",
            )
        ]
