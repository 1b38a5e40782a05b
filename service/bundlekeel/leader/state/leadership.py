"""Leadership: a seat (only sidecars with a seat can lead), a term (epoch) and a deadline on this machine's boot clock.

The metadata store extends this sidecar's session when it receives a request, which is after the request was *sent*. So
the session lasts at least for its time-out after the last confirmed request was sent. The deadline is that time, less a
margin. kazoo's own events do not end the leadership, because LOST may never come while ZooKeeper is unreachable: the
deadline ends it. The admin API accepts no fencing token. So `permit` is checked right before each request that changes
anything, for the epoch in which the change was decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from bundlekeel.leader.state.responses import Role
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import Forbidden, LeadershipLost, StoreError
from bundlekeel.model.members import Member
from bundlekeel.ports import Clock, Coordination, Metadata, Telemetry
from bundlekeel.settings.model import LeadershipSettings

_log = structlog.get_logger(__name__)

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
BENCH: Final = "bench"


class TermStart:
    """The steps that start a term. It is created before the leadership, so that parts which need it can add steps."""

    def __init__(self) -> None:
        self._steps: list[Callable[[int], Awaitable[None]]] = []

    def add(self, step: Callable[[int], Awaitable[None]]) -> None:
        """Await `step` with the epoch of each new term, after all steps that were added earlier."""
        self._steps.append(step)

    async def __call__(self, epoch: int) -> None:
        """Run all steps for the term `epoch`."""
        for step in self._steps:
            await step(epoch)


class Leadership:
    """Takes a seat (only sidecars with a seat can lead), tries to become leader, and renews the deadline.

    One task calls `run`; all others only read."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        telemetry: Telemetry,
        member: Member,
        settings: LeadershipSettings,
        *,
        metadata: Metadata,
        acts: bool = True,
        on_won: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Start without a seat.

        Args:
            metadata: Shows whether the brokers have moved to another store. Then no sidecar leads.
            acts: Whether this process may change brokers at all (mode `act` in its settings).
            on_won: Takes over the state of earlier leaders; the term starts when it returns.
        """
        self._coordination = coordination
        self._clock = clock
        self._telemetry = telemetry
        self._seats = settings.seats
        self._heartbeat = settings.heartbeat
        self._margin_ratio = settings.margin_ratio
        self._metadata = metadata
        self._acts = acts
        self.member = member
        self.members: list[Member] = []
        self.leader: Member | None = None
        # Set when the election is won. The term (`epoch`) starts when the state is taken over.
        self.lease: Lease | None = None
        self.epoch: int | None = None
        self.role: Role = BENCH
        self._stopping = False
        # Why the last turn failed; empty: it succeeded.
        self.fault = ""
        self.on_won = on_won

    @property
    def lease_remaining(self) -> float:
        """Seconds until this sidecar's leadership ends without a renewal; 0: it does not lead."""
        return self.lease.remaining(self._clock.boot()) if self.epoch is not None and self.lease is not None else 0.0

    @property
    def leading(self) -> bool:
        """Whether this sidecar leads now, by its own deadline."""
        return self.lease_remaining > 0

    @property
    def other_leader(self) -> Member | None:
        """The leading sidecar with the address of its API; None: this one leads, or no address is known."""
        leader = self.leader
        reachable = leader is not None and leader.url and leader.id != self.member.id
        return leader if reachable and not self.leading else None

    def announce(self, *, url: str | None = None, settings: str | None = None) -> None:
        """Publish this sidecar's API address and digest of settings for the other sidecars."""
        member = self.member
        self.member = replace(member, url=member.url if url is None else url, settings=settings or member.settings)

    def no_seat(self) -> str:
        """Return why this sidecar does not observe the cluster, and which sidecar to use; "": it has or may get a seat.

        A sidecar needs a seat to observe, and their number is limited."""
        if self.role != BENCH or len(self.members) < self._seats:
            return ""
        other = self.leader or self.members[0]
        return (
            f"this sidecar does not read the cluster: no seat is free (leadership.seats is {self._seats}); use "
            f"{other.id}: bundlekeel --url {other.url}"
        )

    def permit(self, epoch: int) -> None:
        """Check, right before a change, that the term of this epoch lasts and the store is connected.

        Raises LeadershipLost if the deadline has passed or another term has started, and Forbidden if this process may
        not change anything. Raises StoreError if the connection is suspended: nothing may be sent now, but the term
        continues if the connection returns in time.
        """
        if not self._acts:
            raise Forbidden("the mode in the settings file allows no changes of brokers")
        if epoch != self.epoch:
            raise LeadershipLost(f"the term of epoch {epoch} is over")
        if not self.leading:
            raise LeadershipLost("this sidecar's leadership deadline has passed")
        if not self._coordination.connected:
            raise StoreError("the connection to the metadata store is suspended")

    def current_epoch(self) -> int:
        """Return the epoch that this leader's writes contain, so that the store can reject them after the term.

        Raises LeadershipLost if this sidecar does not lead."""
        if self.epoch is None or not self.leading:
            raise LeadershipLost("this sidecar does not lead")
        return self.epoch

    async def run(self) -> None:
        """Call `turn` at each heartbeat, and immediately after a change in the store, until `stop`."""
        while not self._stopping:
            await self.turn()
            await self._coordination.wait_changed(self._heartbeat)

    async def turn(self) -> None:
        """Renew the deadline, or try to get a seat and the leadership. Errors of the store are logged, not raised."""
        fault = ""
        try:
            if self.lease is not None and self._metadata.migration_now.code is Code.STORE_MIGRATED:
                await self._resign()
            elif self.lease is not None:
                await self._renew(self.lease)
            if self.lease is None:
                await self._follow()
        except StoreError as error:
            fault = str(error)
        # 0 seconds: the first connection is not established yet.
        if fault and fault != self.fault and self._coordination.session_seconds:
            _log.warning("could not renew or acquire leadership; retrying at the next heartbeat", error=fault)
        self.fault = fault
        if self.epoch is not None and not self.leading:
            self._drop("deadline passed")
        self._publish()

    async def stop(self) -> None:
        """Resign immediately. The seat ends with the session."""
        self._stopping = True
        await self._resign()

    async def _resign(self) -> None:
        lease, self.lease, self.epoch = self.lease, None, None
        if lease is not None:
            try:
                await self._coordination.resign(lease.epoch)
            except StoreError as error:
                _log.info("could not resign; leadership ends with the session", error=str(error))

    async def _renew(self, lease: Lease) -> None:
        sent = self._clock.boot()
        if not await self._coordination.still_leading(lease.epoch):
            self._drop("another sidecar leads")
        elif not lease.remaining(self._clock.boot()):
            # Permits were refused because the deadline had passed, so this term stays over and a new one starts.
            self._drop("deadline passed")
        else:
            self.lease = self._lease_of(lease.epoch, sent)
            self.members = await self._coordination.members()
            if any(member.id == self.member.id and member.settings != self.member.settings for member in self.members):
                await self._coordination.take_seat(self.member, seats=self._seats)

    def _lease_of(self, epoch: int, sent: float) -> Lease:
        return Lease(epoch, sent + self._coordination.session_seconds * (1 - self._margin_ratio))

    def _drop(self, why: str) -> None:
        _log.warning("leadership lost", epoch=self.lease.epoch if self.lease is not None else None, why=why)
        self.lease = self.epoch = self.leader = None
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
        # The leader node can be ours although we do not lead: the response to our campaign was lost, or our deadline
        # passed but the session did not. No other sidecar can lead until we campaign again.
        ours_still = self.leader is not None and self.leader.id == self.member.id
        if (self.leader is None or ours_still) and not self._stopping:
            (await self._metadata.migration()).demand_readable()
            await self._campaign()

    async def _campaign(self) -> None:
        sent = self._clock.boot()
        epoch = await self._coordination.campaign(self.member)
        if epoch is None:
            self.leader = await self._coordination.leader()
            return
        self.lease = self._lease_of(epoch, sent)
        try:
            await self._take_over(epoch)
            self.epoch = self.lease.epoch if self.lease is not None else None
        finally:
            if self.epoch is None:
                # The term could not start: campaign again.
                self.lease = None
        if self.epoch is not None:
            self.leader = replace(self.member, epoch=epoch)
            _log.info("leadership won", epoch=epoch)
            self._become(LEADER)

    async def _take_over(self, epoch: int) -> None:
        """Take over the state of earlier leaders before the term starts.

        This may take longer than a session lasts, so it runs in its own task while the lease is renewed. The task is
        cancelled if the lease is lost."""
        if self.on_won is None:
            return
        task = asyncio.ensure_future(self.on_won(epoch))
        try:
            while self.lease is not None and not (await asyncio.wait({task}, timeout=self._heartbeat))[0]:
                await self._hold(self.lease)
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _hold(self, lease: Lease) -> None:
        try:
            await self._renew(lease)
        except StoreError as error:
            _log.debug("lease could not be renewed; retrying until its deadline", error=str(error))
        if self.lease is not None and not self.lease.remaining(self._clock.boot()):
            self._drop("deadline passed while taking over")

    def _become(self, role: Role) -> None:
        if role != self.role:
            self.role = role
            self._telemetry.count("leader_transitions_total", to=role)

    def _publish(self) -> None:
        self._telemetry.gauge("leader", 1.0 if self.leading else 0.0)
        self._telemetry.gauge("lease_remaining_seconds", self.lease_remaining)
        self._telemetry.gauge("store_connected", 1.0 if self._coordination.connected else 0.0)
        epoch = self.epoch if self.epoch is not None else (self.leader.epoch if self.leader else -1)
        self._telemetry.gauge("epoch", float(epoch))


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act in one term. `deadline`: seconds on this machine's boot clock. A renewal creates a new lease.

    The deadline is computed from the time at which the last confirmed request was *sent*. The store refreshed the
    session after that time, so no other sidecar can lead before the deadline.
    """

    epoch: int
    deadline: float

    def remaining(self, boot: float) -> float:
        """Return the seconds until the deadline at a boot-clock time; 0: it has passed."""
        return max(0.0, self.deadline - boot)
