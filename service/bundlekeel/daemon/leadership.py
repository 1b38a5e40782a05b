"""Who leads: a seat, a term (epoch), and our own deadline on the boot clock.

A session of the metadata store is refreshed no earlier than the moment we *sent* a request that it answered. So it
cannot expire at the server before that moment plus the negotiated time-out, and our deadline is that, less a margin.
kazoo's own events do not end leadership (while the ensemble is away LOST may never come): the deadline does.
The admin API takes no fencing token; `permit` is therefore asked right before each call that changes anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from bundlekeel.core.errors import LeadershipLost, StoreError
from bundlekeel.ports import Clock, Coordination, Member, Telemetry

_log = structlog.get_logger(__name__)

LEADER, FOLLOWER, BENCH = "leader", "follower", "bench"


class Leadership:
    """Keeps a seat, campaigns, renews the deadline. One task calls `run`; everybody else only reads."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        telemetry: Telemetry,
        member: Member,
        *,
        seats: int,
        heartbeat_seconds: float,
        margin_ratio: float,
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._telemetry = telemetry
        self._seats = seats
        self._heartbeat = heartbeat_seconds
        self._margin_ratio = margin_ratio
        self.member = member
        self.members: list[Member] = []
        self.leader: Member | None = None
        self.epoch: int | None = None
        self.role = BENCH
        self._deadline = 0.0
        self._stopping = False
        self.on_won: Callable[[int], Awaitable[None]] | None = None

    @property
    def lease_remaining(self) -> float:
        """Seconds until our own deadline; 0 when not leading."""
        return max(0.0, self._deadline - self._clock.boot()) if self.epoch is not None else 0.0

    @property
    def leading(self) -> bool:
        """Whether we lead at this very moment, by our own deadline."""
        return self.epoch is not None and self._clock.boot() < self._deadline

    def permit(self) -> None:
        """Raise unless we lead now and the store answers: asked right before anything is changed.

        LeadershipLost past our deadline: the term is over. StoreError while the connection is suspended: nothing may be
        sent now, but the term lasts if the connection comes back in time.
        """
        if not self.leading:
            raise LeadershipLost("our leadership deadline has passed")
        if not self._coordination.connected:
            raise StoreError("the connection to the metadata store is suspended")

    def current_epoch(self) -> int:
        """The epoch to fence writes with. LeadershipLost when we do not lead."""
        if self.epoch is None or not self.leading:
            raise LeadershipLost("we do not lead")
        return self.epoch

    async def run(self) -> None:
        """Until `stop`: one turn a heartbeat, and at once when something changed in the store."""
        while not self._stopping:
            await self.turn()
            await self._coordination.wait_changed(self._heartbeat)

    async def turn(self) -> None:
        """Renew the deadline, or try for a seat and for leadership. A store that does not answer only costs time."""
        try:
            if self.epoch is not None:
                await self._renew(self.epoch)
            if self.epoch is None:
                await self._follow()
        except StoreError as error:
            _log.debug("leadership turn failed", error=str(error))
        if self.epoch is not None and not self.leading:
            self._drop("deadline passed")
        self._publish()

    async def stop(self) -> None:
        """Give leadership up at once; the seat goes with the session."""
        self._stopping = True
        epoch, self.epoch = self.epoch, None
        self._deadline = 0.0
        if epoch is not None:
            try:
                await self._coordination.resign(epoch)
            except StoreError as error:
                _log.info("could not resign; the session's end will", error=str(error))

    async def _renew(self, epoch: int) -> None:
        sent = self._clock.boot()
        if not await self._coordination.still_leading(epoch):
            self._drop("somebody else leads")
        elif not self.leading:
            # Whoever asked for a permit meanwhile was told that this term is over. It is: a new one begins.
            self._drop("deadline passed")
        else:
            self._deadline = self._deadline_from(sent)
            self.members = await self._coordination.members()

    def _deadline_from(self, sent: float) -> float:
        return sent + self._coordination.session_seconds * (1 - self._margin_ratio)

    def _drop(self, why: str) -> None:
        _log.warning("leadership lost", epoch=self.epoch, why=why)
        self.epoch = None
        self.leader = None
        self._deadline = 0.0
        self._become(FOLLOWER)

    async def _follow(self) -> None:
        self.members = await self._coordination.members()
        ours = await self._coordination.take_seat(self.member, seats=self._seats)
        if ours is None:
            self.leader = await self._coordination.leader()
            self._become(BENCH)
            return
        self.member = replace(self.member, seat=ours.seat)
        self.leader = await self._coordination.leader()
        self._become(FOLLOWER)
        # A leader node that is ours although we do not lead: the answer to our campaign was lost, or our deadline
        # passed while the session lived on. Nobody else can lead until we campaign anew.
        ours_still = self.leader is not None and self.leader.id == self.member.id
        if (self.leader is None or ours_still) and not self._stopping:
            await self._campaign()

    async def _campaign(self) -> None:
        sent = self._clock.boot()
        epoch = await self._coordination.campaign(self.member)
        if epoch is None:
            self.leader = await self._coordination.leader()
            return
        if self.on_won is not None:
            # Nothing is done before everything is taken over; a term that could not be begun is won anew.
            await self.on_won(epoch)
        self._deadline = self._deadline_from(sent)
        self.epoch = epoch
        self.leader = replace(self.member, epoch=epoch)
        _log.info("leadership won", epoch=epoch)
        self._become(LEADER)

    def _become(self, role: str) -> None:
        if role != self.role:
            self.role = role
            self._telemetry.count("leader_transitions_total", to=role)

    def _publish(self) -> None:
        self._telemetry.gauge("leader", 1.0 if self.leading else 0.0)
        self._telemetry.gauge("lease_remaining_seconds", self.lease_remaining)
        self._telemetry.gauge("store_connected", 1.0 if self._coordination.connected else 0.0)
        known = self.epoch if self.epoch is not None else (self.leader.epoch if self.leader else -1)
        self._telemetry.gauge("epoch", float(known))
