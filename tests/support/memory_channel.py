"""`Channel` in memory, whose entries a test publishes. They pass through the same table as entries of real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bundlekeel.model.channel_states import ChannelTable, ServiceUnit, UnitState
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.planning.splitting.children import children_of
from bundlekeel.ports import ChannelVariant, ChannelView, Clock
from tests.support.generations import Generations


class MemoryChannel(Generations):
    """Channel a test writes with `publish`, or with whole flows (`own`, `transfer`, `unload`, `split`).

    There is no view before `start`; while `suspended`, `view` and `unit` raise StoreError.
    """

    def __init__(self, clock: Clock, *, variant: ChannelVariant = "system_topic") -> None:
        super().__init__(first=1)
        self.variant = variant
        self.suspended = False
        self.started = self.closed = False
        self.service_urls: tuple[str, ...] = ()
        self.table = ChannelTable(store=variant == "metadata_store")
        self._clock = clock

    # --- what a test may do --------------------------------------------------------------------------------

    def publish(
        self,
        bundle: str,
        state: UnitState,
        destination: str = "",
        source: str = "",
        *,
        children: dict[str, str] | None = None,
        force: bool = False,
        version: int | None = None,
    ) -> bool:
        """Publish a state. `version`: by default that of a valid successor. Return False if the entry is ignored."""
        current = self.table.units.get(bundle)
        unit = ServiceUnit(
            state=state,
            destination=destination,
            source=source,
            children=children or {},
            force=force,
            timestamp_ms=self._clock.wall_ms(),
            version=version if version is not None else 1 if current is None else current.version + 1,
        )
        won = self.table.apply(bundle, unit, self._clock.wall_ms())
        self._publish()
        return won

    def forget(self, bundle: str) -> None:
        """Publish a tombstone for the bundle."""
        self.table.apply(bundle, None, self._clock.wall_ms())
        self._publish()

    def own(self, bundle: str, broker_id: str) -> None:
        """Publish the messages of an assignment after a lookup."""
        self.publish(bundle, UnitState.ASSIGNING, broker_id)
        self.publish(bundle, UnitState.OWNED, broker_id)

    def transfer(self, bundle: str, destination: str) -> None:
        """Publish the messages of a transfer by the owner."""
        source = self.table.units[bundle].destination
        for state in (UnitState.RELEASING, UnitState.ASSIGNING, UnitState.OWNED):
            self.publish(bundle, state, destination, source)

    def unload(self, bundle: str) -> None:
        """Publish the messages of an unload by the owner."""
        source = self.table.units[bundle].destination
        for state in (UnitState.RELEASING, UnitState.FREE):
            self.publish(bundle, state, "", source)

    def split(self, bundle: str, position: int) -> tuple[str, str]:
        """Publish the messages of a split by the owner. Return the children."""
        owner = self.table.units[bundle].destination
        low, high = children_of(bundle, [position])
        ranges = {child.rpartition("/")[2]: "" for child in (low, high)}
        self.publish(bundle, UnitState.SPLITTING, "", owner, children=ranges)
        for child in (low, high):
            self.own(child, owner)
        self.publish(bundle, UnitState.DELETED, "", owner, children=ranges)
        self.forget(bundle)
        return low, high

    # --- Channel -------------------------------------------------------------------------------------------

    async def start(self, service_urls: Sequence[str]) -> None:
        self.started = True
        self.service_urls = tuple(service_urls)

    async def view(self) -> ChannelView:
        if not self.started:
            raise SnapshotError("the channel in memory has not been read yet")
        self._check()
        return ChannelView(
            generation=self._generation,
            variant=self.variant,
            units=dict(self.table.units),
            seen_ms=dict(self.table.seen_ms),
            rejected=tuple(self.table.rejected),
            wall_ms=self._clock.wall_ms(),
        )

    async def unit(self, bundle: str) -> ServiceUnit | None:
        await asyncio.sleep(0)
        self._check()
        return self.table.units.get(bundle)

    async def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.suspended:
            raise StoreError("the channel in memory is suspended")
