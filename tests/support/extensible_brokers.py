"""Brokers of the extensible load manager in memory: transfers by the owner, and the messages of the ownership channel.

All of it was observed on 4.2.4 (tests/extensible/test_transfers.py). A redirect keeps the destination. A transfer to
the owner's own broker is a 500, and so is one that is not finished in time. Several split positions are a 412. A bundle
with a single topic is split at the requested position.
"""

from __future__ import annotations

from collections.abc import Sequence

from bundlekeel.model.channel_states import ServiceUnit, UnitState
from bundlekeel.planning.splitting.children import children_of
from bundlekeel.pulsar.sources.ownership import serving
from tests.support.memory_admin import BrokerModel, ModelReply, SplitSeen, UnloadSeen


class ExtensibleModel(BrokerModel):
    """`BrokerModel` of the extensible load manager. `owner` reads it as a sidecar reads the channel.

    `changes`: (bundle, state, destination, source) in the order published. `stuck_in`: the next transfer stays in this
    state, and its broker answers 500 after its own time-out; `own` ends it as the brokers' leader would.
    """

    fewest_topics = 0

    def __init__(self, brokers: Sequence[str], *, leader: str = "") -> None:
        super().__init__(brokers, leader=leader)
        self.changes: list[tuple[str, UnitState, str, str]] = []
        self.units: dict[str, ServiceUnit] = {}
        self.stuck_in: UnitState | None = None

    def own(self, bundle: str, owner: str) -> None:
        """A lookup assigns it, or the brokers' leader gives it away, whatever state it is in."""
        self.publish(bundle, UnitState.OWNED, owner)

    def publish(self, bundle: str, state: UnitState, destination: str, source: str = "") -> None:
        """Publish a state."""
        self.changes.append((bundle, state, destination, source))
        self.units[bundle] = ServiceUnit(state=state, destination=destination, source=source)
        owner = serving(self.units[bundle])
        if owner is None:
            self.owners.pop(bundle, None)
        else:
            self.owners[bundle] = owner

    def unload(self, bundle: str, *, at: str, destination: str | None) -> ModelReply:
        """One hop of a transfer (pulsar.md 7.2): any broker sends to the owner, who does it all."""
        self.unloads.append(UnloadSeen(at=at, bundle=bundle, destination=destination))
        if bundle not in self.topics:
            return ModelReply(status=412, reason=f"Invalid upper boundary for bundle {bundle}")
        if destination is not None and destination not in self.brokers:
            return ModelReply(status=409, reason="Not allowed unload namespace bundle to inactive destination broker")
        owner = self.owners.get(bundle)
        if owner is None:
            return ModelReply(status=204)
        if owner.broker_id != at:
            extra = {} if destination is None else {"destinationBroker": destination}
            return ModelReply(status=307, to=owner.broker_id, query={"authoritative": "true", **extra})
        if destination is not None and owner.broker_id.endswith(destination):
            message = f"Namespace bundle: {bundle} own by {at}, cannot be transfer to same broker."
            return ModelReply(
                status=500, reason=f"\n --- An unexpected error occurred in the server ---\n\nMessage: {message}"
            )
        return self._transfer(bundle, at, destination or "")

    def split(self, bundle: str, *, at: str, positions: Sequence[int] | None) -> ModelReply:
        """One hop of a split: one position a call."""
        if positions is not None and len(positions) > 1 and bundle in self.topics:
            self.splits.append(SplitSeen(at=at, bundle=bundle, positions=tuple(positions)))
            return ModelReply(status=412, reason="Split bundle failed due to invalid request")
        return super().split(bundle, at=at, positions=positions)

    def _divide(self, bundle: str, positions: list[int]) -> None:
        owner = self.owners[bundle].broker_id
        self.publish(bundle, UnitState.SPLITTING, "", owner)
        super()._divide(bundle, positions)
        for child in children_of(bundle, positions):
            self.publish(child, UnitState.OWNED, owner)
        self.publish(bundle, UnitState.DELETED, "", owner)

    def _transfer(self, bundle: str, source: str, destination: str) -> ModelReply:
        states = (UnitState.RELEASING, UnitState.ASSIGNING, UnitState.OWNED)
        for state in states if destination else (UnitState.RELEASING, UnitState.FREE):
            self.publish(bundle, state, destination, source)
            if state == self.stuck_in:
                self.stuck_in = None
                return ModelReply(status=500, reason="java.util.concurrent.TimeoutException")
        self.after_unload(bundle)
        return ModelReply(status=204)
