"""Watch for outages of the metadata store (`planning.guard.outage`), and share them with the other sidecars.

A sidecar that detects an outage publishes a notice in the shared document `outage`, so that a later leader knows of it.
If the leader could reach the store during that time, it closes the notice: only the notice's author had lost its
connection.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

import msgspec
import structlog

from bundlekeel.leader.gate.gate import Obstacle
from bundlekeel.leader.gate.responses import SettlingView
from bundlekeel.leader.state.documents import SCHEMA
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, SnapshotError, StaleWrite, StoreError
from bundlekeel.model.members import Member
from bundlekeel.planning.guard import outage as core
from bundlekeel.planning.guard.outage import Outage, OutageMemory, SettleRules, SettleWait, StoreSight
from bundlekeel.ports import Clock, Coordination, LoadSource, RawClusterView, Telemetry
from bundlekeel.pulsar.formats.external_input import check_ranges, read, utc

_log = structlog.get_logger(__name__)

OUTAGE: Final = "outage"
LOOK_SECONDS: Final = 1.0
# Wall clocks of two hosts may be this far apart.
SKEW_MS: Final = 15_000
# A leader's record of the registered brokers is ignored when it is older than this.
KNOWN_MS: Final = 3_600_000


class OutageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The shared document: the last outage that a sidecar published.

    `over`: the brokers have settled, or only the author had lost its connection."""

    schema: int = SCHEMA
    by: str = ""
    why: str = ""
    since_ms: int = 0
    back_ms: int = 0
    expected: tuple[str, ...] = ()
    over: bool = False


def settle_for(seconds: float, call_seconds: float) -> SettleRules:
    """Return the rules for the wait after an outage.

    `seconds`: how long the set of registered brokers must not change before moves start again. `call_seconds`: time
    limit of one read of the store."""
    return SettleRules(seconds=seconds, step=2 * (LOOK_SECONDS + call_seconds))


class LeadershipView(Protocol):
    """The part of the leadership that `OutageWatch` reads."""

    @property
    def member(self) -> Member:
        """This sidecar."""

    @property
    def leading(self) -> bool:
        """Whether this sidecar leads now."""


class OutageWatch:
    """Detects outages of the metadata store: once per second (`run`), and in each cycle's snapshot (`obstacle`)."""

    def __init__(
        self,
        coordination: Coordination,
        source: LoadSource,
        leadership: LeadershipView,
        clock: Clock,
        telemetry: Telemetry,
        *,
        settle: SettleRules,
        session_seconds: float,
    ) -> None:
        """`session_seconds`: the requested session time-out, used until the store has returned the granted one."""
        self._coordination = coordination
        self._source = source
        self._leadership = leadership
        self._clock = clock
        self._telemetry = telemetry
        self._asked_session = session_seconds
        self._settle = settle
        self._state = core.begin(clock.boot())
        # Whether a notice of the current outage is published.
        self._published = False
        # The last notice that was read or written, and the notice of the current outage.
        self._handled: tuple[str, int] | None = None
        self._about: tuple[str, int] | None = None

    @property
    def state(self) -> OutageMemory:
        """What was observed of the store and the brokers so far."""
        return self._state

    async def run(self) -> None:
        """Check the store once per second, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Check whether the store responds, which brokers are registered, and the notices of other sidecars."""
        answered, notice = await self._read()
        self._see(answered, await self._registered() if answered else None)
        if answered:
            try:
                await self._exchange(notice)
            except StoreError as error:
                _log.info("outage notice could not be exchanged with the other sidecars; retrying", error=str(error))
        left = self.waiting()
        self._telemetry.gauge("settling_after_outage_seconds", left.seconds if left is not None else 0.0)

    def obstacle(self, picture: RawClusterView | None = None) -> Obstacle | None:
        """Return why nothing may move yet after an outage, or None. `picture`: a new snapshot to take into account."""
        if picture is not None:
            now = self._clock.boot()
            self._change(core.noticed(self._state, _registrations(picture), now, self._settle))
        left = self.waiting()
        if left is None:
            return None
        return Obstacle(code=Code.SETTLING_AFTER_OUTAGE, detail=self._sentence(left))

    def waiting(self) -> SettleWait | None:
        """Return the remaining wait after an outage; None: moves are allowed."""
        return core.waiting(self._state, self._settle)

    def view(self) -> SettlingView | None:
        """Return the remaining wait after an outage in the form of the API; None: moves are allowed."""
        left = self.waiting()
        if left is None:
            return None
        until = 0 if left.away else self._clock.wall_ms() + int(1000 * left.seconds)
        return SettlingView(
            why=left.why,
            away=left.away,
            missing=list(left.missing),
            quiet_seconds=round(left.quiet, 1),
            until_ms=until,
            sentence=self._sentence(left),
        )

    def remember(self, brokers: Collection[str], stored_ms: int) -> None:
        """Expect the brokers that the previous leader's last cycle saw, so that missing ones are noticed.

        `stored_ms`: when that leader stored them (Unix ms). An old or future record is ignored."""
        if 0 <= self._clock.wall_ms() - stored_ms <= KNOWN_MS:
            self._state = core.remember(self._state, brokers, self._clock.boot())

    # --- observations ---

    def _see(self, answered: bool, brokers: frozenset[core.Registration] | None) -> None:
        sight = StoreSight(
            boot=self._clock.boot(),
            answered=answered,
            session_seconds=self._coordination.session_seconds or self._asked_session,
            brokers=brokers,
        )
        self._change(core.advance(self._state, sight, self._settle))

    def _change(self, state: OutageMemory) -> None:
        before, after, self._state = self._state.outage, state.outage, state
        if after is not None and before is None:
            # A closed notice of an earlier outage does not apply to this one.
            self._published, self._about = False, None
            self._report_outage(after)
        elif after is None and before is not None:
            _log.info("brokers have settled after an outage; moves are allowed again", why=before.why)

    def _report_outage(self, outage: Outage) -> None:
        self._telemetry.count("outages_total")
        _log.warning("nothing moves until the brokers have settled", why=outage.why)

    async def _read(self) -> tuple[bool, tuple[OutageRecord | None, int | None]]:
        if not self._coordination.connected:
            return False, (None, None)
        try:
            document = await self._coordination.read(OUTAGE)
        except StoreError:
            return False, (None, None)
        if document is None:
            return True, (None, None)
        return True, (_decode(document.data), document.version)

    async def _registered(self) -> frozenset[core.Registration] | None:
        try:
            return _registrations(await self._source.picture())
        except (StoreError, SnapshotError):
            return None

    # --- notices to the other sidecars ---

    async def _exchange(self, notice_and_version: tuple[OutageRecord | None, int | None]) -> None:
        notice, version = notice_and_version
        if notice is not None and not notice.over:
            await self._handle(notice, version)
        elif notice is not None and self._about == (notice.by, notice.since_ms):
            self._state = core.leave(self._state, self._clock.boot())
        await self._publish(notice, version)

    async def _handle(self, notice: OutageRecord, version: int | None) -> None:
        """Join an outage that another sidecar published, if this sidecar could not reach the store either.

        If it could, and is the leader, it closes the notice instead."""
        key, boot, outage = (notice.by, notice.since_ms), self._clock.boot(), self._state.outage
        is_new, self._handled = self._handled != key, key
        if outage is not None and not is_new:
            return
        missed = self._wall(self._state.calm_since) >= notice.since_ms - SKEW_MS and self._fresh(notice)
        if outage is not None or (is_new and missed):
            joined = Outage(why=notice.why, since=boot, expected=frozenset(notice.expected), back=boot)
            self._state, self._about = core.join(self._state, joined), key
        elif self._leadership.leading:
            await self._write(msgspec.structs.replace(notice, over=True), version)
        if outage is None and self._state.outage is not None:
            self._report_outage(self._state.outage)

    async def _publish(self, notice: OutageRecord | None, version: int | None) -> None:
        """Publish the outage when the store responds again, unless another sidecar has published one."""
        outage = self._state.outage
        if outage is None or outage.back is None or self._published or (notice is not None and not notice.over):
            return
        self._published = True
        record = OutageRecord(
            by=self._leadership.member.id,
            why=outage.why,
            since_ms=self._wall(outage.since),
            back_ms=self._wall(outage.back),
            expected=tuple(sorted(outage.expected)),
        )
        self._handled = self._about = (record.by, record.since_ms)
        await self._write(record, version)

    async def _write(self, notice: OutageRecord, version: int | None) -> None:
        try:
            await self._coordination.write_shared(OUTAGE, msgspec.json.encode(notice), version=version)
        except StaleWrite:
            return  # another sidecar published its notice at the same time

    def _fresh(self, notice: OutageRecord) -> bool:
        return self._clock.wall_ms() - notice.back_ms <= 1000 * self._settle.patience

    def _wall(self, boot: float) -> int:
        return self._clock.wall_ms() - int(1000 * (self._clock.boot() - boot))

    def _sentence(self, left: SettleWait) -> str:
        if left.away:
            return f"{left.why}, and does not answer yet"
        until = utc(self._clock.wall_ms() + 1000 * left.seconds, field="settled").strftime("%H:%M:%SZ")
        condition = f"{self._settle.seconds:g} s without a change of the registry"
        if left.missing:
            return f"{left.why}; waiting for {', '.join(left.missing)}, then {condition}; at the latest at {until}"
        return f"{left.why}; all brokers are back; waiting for {condition} ({left.quiet:.0f} s so far), until {until}"


def _registrations(picture: RawClusterView) -> frozenset[core.Registration]:
    return frozenset((broker, endpoint.start_timestamp) for broker, endpoint in picture.endpoints.items())


def _decode(data: bytes) -> OutageRecord | None:
    try:
        record = read(data, OutageRecord, what=OUTAGE)
        check_ranges(record, what=OUTAGE)
        return record if record.schema == SCHEMA else None
    except CodecError:
        return None
