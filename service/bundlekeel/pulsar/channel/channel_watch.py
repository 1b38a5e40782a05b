"""Watches the ownership channel for operators: states of bundles, findings (faults), metrics, journal records.

The channel is checked when it or the registry of brokers changes, and once per second, because deadlines pass without
an event. While the channel or the registry cannot be read, findings stay as they are, and `channel_up` is 0.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bundlekeel.model.channel_states import IN_FLIGHT, ServiceUnit, UnitState, owner_of
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import BundlekeelError, Conflict, SnapshotError, StoreError
from bundlekeel.model.findings import Finding, finding_records
from bundlekeel.model.names import namespace_of
from bundlekeel.model.text_format import numbered
from bundlekeel.ports import ChannelVariant, ChannelView, Clock, LoadSource, Metadata, RawClusterView, Telemetry
from bundlekeel.pulsar.channel.findings import Absences, ChannelFinding, Deadlines, FindingCode, Watching, findings
from bundlekeel.pulsar.channel.responses import ChannelSummary
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.pulsar.sources.ownership import WITH_CHANNEL, ChannelByVariant, channel_brokers

Key = tuple[str, str, tuple[str, ...]]

VARIANT_DISAGREES: Final = FindingCode.VARIANT_DISAGREES
VARIANTS: Final[Mapping[ChannelVariant, str]] = {"system_topic": "system topic", "metadata_store": "metadata store"}
TICK_SECONDS: Final = 1.0
# During many changes, check a few times per second. A large channel takes at most this share of the time.
SHORTEST_PAUSE_SECONDS: Final = 0.2
SHARE_OF_TIME: Final = 0.1
_NAMESPACES_ASKED: Final = 20
# Findings whose remedy depends on which bundles the namespace has.
_BOUNDARIES_HELP: Final = frozenset({FindingCode.OWNED_TWICE, FindingCode.SPLIT_CHILDREN_MISSING})
REGISTRY_LAG_MS: Final = 1000
BY_REGISTRY: Final = frozenset({FindingCode.OWNER_NOT_ALIVE, FindingCode.TARGET_NOT_ALIVE})
# How long entries that were replaced by force are kept (see `ForcedEntries`).
REMEMBERED_MS: Final = 10_000
_UNREACHABLE_REMEDY: Final = (
    "check the broker's process and log; its bundles have no other owner until its metadata session ends, then the "
    "leader broker reassigns them"
)
_VARIANT_REMEDY: Final = (
    "finish the migration: the same loadManagerServiceUnitStateTableViewClassName on every broker, and afterwards "
    "loadBalancerServiceUnitTableViewSyncer=None; nothing is moved until then"
)


@dataclass(kw_only=True, eq=False)
class ChannelWatch:
    """Follows the ownership channel and keeps its current findings; `run` is a task of the sidecar.

    `record`: adds a record to the journal. `active`: whether this sidecar follows the cluster; spare sidecars do
    not.
    """

    channel: ChannelByVariant
    source: LoadSource
    metadata: Metadata
    config: BrokerConfig
    record: Callable[[Mapping[str, Any]], None]
    telemetry: Telemetry
    clock: Clock
    active: Callable[[], bool] = lambda: True

    def __post_init__(self) -> None:
        self._absences = Absences()
        self._forced = ForcedEntries()
        self._watched_ms = 0
        self._disagrees_since = 0
        self._current: dict[Key, ChannelFinding] = {}
        self._generations = (0, 0)
        self._mode = ""
        self._unreachable = UnreachableOwners()
        self.view: ChannelView | None = None
        self.deadlines = Deadlines()
        self.fault = "the channel has not been read yet"

    async def run(self) -> None:
        """Check the channel repeatedly until cancelled."""
        clock = self.clock
        while True:
            if not self.active():
                self._forget("a sidecar without a seat does not follow the channel")
                await clock.sleep(TICK_SECONDS)
                continue
            before = clock.boot()
            await self.turn()
            await clock.sleep(max(SHORTEST_PAUSE_SECONDS, (clock.boot() - before) * (1 / SHARE_OF_TIME - 1)))
            await self._until_news()

    async def _until_news(self) -> None:
        channel, picture = self._generations
        waiters = [
            asyncio.create_task(self.channel.wait_changed(channel, TICK_SECONDS)),
            asyncio.create_task(self.source.wait_changed(picture, TICK_SECONDS)),
        ]
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
            await asyncio.gather(*waiters, return_exceptions=True)

    async def turn(self) -> None:
        """Check the channel once. If the channel or the registry cannot be read, set `fault` and raise no error."""
        try:
            picture = await self.source.picture()
            await self.channel.follow(picture)
            self._mode, self._generations = picture.mode, (self._generations[0], picture.generation)
            if not channel_brokers(picture):
                self._forget(f"the brokers run the {self._mode} load manager, which has no ownership channel")
                return
            view = await self.channel.view()
            # Read the registry after the channel, so that it contains an owner that has just registered.
            picture = await self.source.picture()
        except (StoreError, SnapshotError) as error:
            self.fault = str(error)
            if not self.channel.on:
                self.view = None
            elif self.view is not None:
                await self._look_for_dead(self.view)
            self._publish_health()
            return
        await self._look(view, picture)

    async def _look_for_dead(self, view: ChannelView) -> None:
        """Update only the findings on unreachable brokers, while the channel cannot be read.

        The broker that serves the channel may itself have failed.
        """
        try:
            picture = await self.source.picture()
        except (StoreError, SnapshotError):
            return
        stays = [row for row in self._current.values() if row.code != FindingCode.OWNER_UNREACHABLE]
        self._note([*stays, *self._unreachable.rows(picture, view.units, self.clock.wall_ms())])

    def _forget(self, fault: str) -> None:
        self.view, self._current, self._watched_ms, self._disagrees_since = None, {}, 0, 0
        self.fault = fault
        for name, label in (("channel_bundles", "state"), ("channel_findings", "code"), ("channel_up", "variant")):
            self.telemetry.retain(name, label, set())
        self.telemetry.gauge("channel_in_flight_oldest_seconds", 0.0)

    async def _look(self, view: ChannelView, picture: RawClusterView) -> None:
        if self.view is None or self.view.variant != view.variant:
            self._watched_ms = view.wall_ms or self.clock.wall_ms()
        self._forced.note(self.view, view, self.clock.wall_ms())
        self.view, self.fault = view, ""
        self._generations = (view.generation, picture.generation)
        self.deadlines = _longest(self.config, channel_brokers(picture))
        current = {_key(row): row for row in await self._findings(view, picture)}
        dead = self._unreachable.rows(picture, view.units, self.clock.wall_ms())
        self._note([*self._variant_rows(), *dead, *current.values()])
        self._publish_health()
        self._measure(view)

    async def _findings(self, view: ChannelView, picture: RawClusterView) -> list[ChannelFinding]:
        now = self.clock.wall_ms()
        gone = self._absences.note(picture.endpoints, now)

        def look(boundaries: Mapping[str, Sequence[int]] | None) -> tuple[ChannelFinding, ...]:
            return findings(
                view.units,
                view.seen_ms,
                view.rejected,
                picture.endpoints.keys(),
                self.deadlines,
                now,
                boundaries,
                watching=Watching(from_ms=self._watched_ms, gone_ms=gone),
            )

        forced = [
            item
            for item in self._forced.findings(picture.endpoints.keys(), gone, self.deadlines, now)
            if _key(item) not in self._current
        ]
        result = [item for item in look(None) if not _too_fresh(item, gone, now)]
        namespaces = sorted({namespace_of(item.bundle) for item in result if item.code in _BOUNDARIES_HELP})
        if namespaces:
            boundaries = await self._boundaries(namespaces)
            result = [item for item in look(boundaries) if not _too_fresh(item, gone, now)]
        return result + forced

    async def _boundaries(self, namespaces: Iterable[str]) -> dict[str, Sequence[int]]:
        boundaries: dict[str, Sequence[int]] = {}
        for namespace in list(namespaces)[:_NAMESPACES_ASKED]:
            try:
                bounds = await self.metadata.boundaries(namespace)
            except BundlekeelError:
                continue  # remedies then do not use the boundaries of this namespace
            if bounds:
                boundaries[namespace] = bounds
        return boundaries

    def _variant_rows(self) -> list[ChannelFinding]:
        obstacle = self.channel.reading.obstacle
        if not obstacle:
            self._disagrees_since = 0
            return []
        self._disagrees_since = self._disagrees_since or self.clock.wall_ms()
        return [
            ChannelFinding(
                code=VARIANT_DISAGREES,
                bundle="",
                brokers=(),
                state=None,
                since_ms=self._disagrees_since,
                deadline_ms=0,
                detail=obstacle,
                remedy=_VARIANT_REMEDY,
            )
        ]

    # --- metrics and journal ------------------------------------------------------------------------------------

    def _note(self, rows: Sequence[ChannelFinding]) -> None:
        """Replace the findings by `rows`. Per code, write one journal record on new findings and one on ended
        findings."""
        before, self._current = self._current, {_key(row): row for row in rows}
        for record in finding_records(_journaled(before), _journaled(self._current), self.clock.wall_ms()):
            self.record(record)

    def _publish_health(self) -> None:
        if self._mode not in WITH_CHANNEL:
            return
        variant = self.channel.reading.variant or "unknown"
        self.telemetry.retain("channel_up", "variant", {variant})
        self.telemetry.gauge("channel_up", 0.0 if self.fault else 1.0, variant=variant)

    def _measure(self, view: ChannelView) -> None:
        telemetry, counts = self.telemetry, state_counts(view)
        for state, count in counts.items():
            telemetry.gauge("channel_bundles", float(count), state=state)
        codes = Counter(row.code for row in self._current.values())
        for code in FindingCode:
            telemetry.gauge("channel_findings", codes[code], code=str(code))
        telemetry.gauge("channel_in_flight_oldest_seconds", oldest_in_flight(view, self.clock.wall_ms()))

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def expected(self) -> bool:
        """Whether brokers run the extensible load manager, which has a channel; True while that is unknown."""
        return self._mode in ("", *WITH_CHANNEL)

    @property
    def followed(self) -> bool:
        """Whether the newest view of the channel is current."""
        return self.view is not None and not self.fault

    def obstacle(self) -> str:
        """Return why moves must not rely on the channel (brokers store it in two places, or migrate it), or ""."""
        return self.channel.reading.obstacle

    def unfit(self) -> str:
        """Return why moves must not rely on the channel: the `obstacle`, or that it cannot be read; "": they can."""
        return self.obstacle() or (self.fault if self._mode in WITH_CHANNEL else "")

    async def close(self) -> None:
        """Stop following the channel."""
        await self.channel.close()

    def findings(self) -> list[ChannelFinding]:
        """Return the current findings, or the last ones while the channel cannot be read. Raises Conflict or
        StoreError if it was never read."""
        if self.view is None:
            self._require_view()
        return list(self._current.values())

    def findings_of(self, bundle: str) -> list[ChannelFinding]:
        """Return the findings about one bundle; empty while the channel cannot be read."""
        return [row for row in self._current.values() if row.bundle == bundle] if self.followed else []

    def current(self) -> ChannelView:
        """Return the newest view. Raises Conflict if there is no channel, StoreError while it cannot be read."""
        return self._require_view()

    def summary(self) -> ChannelSummary:
        """Return the variant, health, number of bundles by state, and number of findings by code."""
        if not self.expected:
            self._require_view()
        view, reading = self.view, self.channel.reading
        return ChannelSummary(
            variant=reading.variant,
            up=self.followed,
            detail=self.fault,
            obstacle=reading.obstacle,
            wall_ms=view.wall_ms if view else None,
            bundles=len(view.units) if view else 0,
            states=state_counts(view) if view else {},
            in_flight_oldest_seconds=oldest_in_flight(view, self.clock.wall_ms()) if view else 0.0,
            findings=dict(Counter(row.code for row in self._current.values())),
            rejected=len(view.rejected) if view else 0,
            deadlines=self.deadlines,
        )

    def _require_view(self) -> ChannelView:
        if not self.expected:
            text = f"{self.fault}; `bundlekeel where` reads the owner of a bundle"
            raise Conflict(text, code="no-channel", difference=[self.fault])
        if self.view is None or self.fault:
            raise StoreError(f"the ownership channel is not followed: {self.fault}")
        return self.view


def state_counts(view: ChannelView) -> dict[str, int]:
    """Return the number of bundles by state. Init is omitted, because a bundle in Init has no entry."""
    counts = Counter(unit.state for unit in view.units.values())
    return {state.value: counts[state] for state in UnitState if state is not UnitState.INIT}


def oldest_in_flight(view: ChannelView, now_ms: int) -> float:
    """Return the seconds since the oldest assignment, release or split in progress was first read; 0: none."""
    times = [view.seen_ms.get(bundle, now_ms) for bundle, unit in view.units.items() if unit.state in IN_FLIGHT]
    return max(0.0, (now_ms - min(times)) / 1000) if times else 0.0


def _journaled(rows: Mapping[Key, ChannelFinding]) -> dict[Key, Finding]:
    return {
        key: Finding(row.code, row.bundle, row.brokers, row.since_ms, detail=row.detail, remedy=row.remedy)
        for key, row in rows.items()
    }


def _too_fresh(finding: ChannelFinding, gone: Mapping[str, int], now_ms: int) -> bool:
    """Return whether to ignore a finding because the registry may lag behind the channel.

    A broker that has just registered must not count as failed.
    """
    if finding.code not in BY_REGISTRY or finding.brokers[0] in gone:
        return False
    return now_ms - finding.since_ms < REGISTRY_LAG_MS


def _key(row: ChannelFinding) -> Key:
    return row.code, row.bundle, row.brokers


def _longest(config: BrokerConfig, brokers: Iterable[str]) -> Deadlines:
    """Return the longest deadlines of any broker. Until they pass, some broker may still repair an entry."""
    deadlines = [Deadlines.of(values) for broker in brokers if (values := config.values(broker)) is not None]
    if not deadlines:
        return Deadlines()
    return Deadlines(
        in_flight_ms=max(item.in_flight_ms for item in deadlines),
        monitor_ms=max(item.monitor_ms for item in deadlines),
        tombstone_ms=max(item.tombstone_ms for item in deadlines),
        load_data_ms=max(item.load_data_ms for item in deadlines),
    )


class ForcedEntries:
    """Former channel entries of bundles that brokers recently reassigned by force (field `force` of the new entry).

    When a broker fails, the leader broker reassigns its bundles immediately, often before this sidecar notices that the
    broker is gone. So the former entries are kept for some seconds, and become findings when it notices that.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[ServiceUnit, int]] = {}

    def note(self, previous: ChannelView | None, view: ChannelView, now_ms: int) -> None:
        """Keep the entries of `previous` for which `view` has a forced new entry."""
        self._before = {b: (unit, at) for b, (unit, at) in self._before.items() if now_ms - at < REMEMBERED_MS}
        if previous is None or previous.variant != view.variant or previous.generation == view.generation:
            return
        for bundle, unit in view.units.items():
            before = previous.units.get(bundle)
            if unit.force and before is not None and before.version != unit.version:
                self._before[bundle] = (before, now_ms)

    def findings(
        self, registered: Collection[str], gone_ms: Mapping[str, int], deadlines: Deadlines, now_ms: int
    ) -> list[ChannelFinding]:
        """Return findings for kept entries whose broker is gone, each once. `gone_ms`: see `Absences.note`."""
        units = {bundle: unit for bundle, (unit, _) in self._before.items()}
        start_times = dict.fromkeys(units, 0)
        watching = Watching(gone_ms=gone_ms)
        result = [
            item
            for item in findings(units, start_times, (), registered, deadlines, now_ms, watching=watching)
            if item.code in BY_REGISTRY and item.brokers[0] in gone_ms
        ]
        for item in result:
            self._before.pop(item.bundle, None)
        return result


class UnreachableOwners:
    """Finds registered brokers that refuse connections (`AdminUnreachable`), and records since when.

    Most likely these brokers have failed, but their registrations last until their sessions end, some seconds later.
    """

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def rows(self, picture: RawClusterView, units: Mapping[str, ServiceUnit], now_ms: int) -> list[ChannelFinding]:
        """Return one finding per unreachable broker that owns bundles according to the channel, sorted by broker."""
        dead = {item.broker_id: item.detail for item in picture.excluded if item.code == Code.ADMIN_UNREACHABLE}
        self._since = {broker: self._since.get(broker, now_ms) for broker in dead}
        if not dead:
            return []
        owners = Counter(owner.broker_id for unit in units.values() if (owner := owner_of(unit)) is not None)
        return [
            ChannelFinding(
                code=FindingCode.OWNER_UNREACHABLE,
                bundle="",
                brokers=(broker,),
                state=None,
                since_ms=self._since[broker],
                deadline_ms=0,
                detail=f"{broker} owns {numbered(owners[broker], 'bundle')} and cannot be reached: {dead[broker]}",
                remedy=_UNREACHABLE_REMEDY,
            )
            for broker in sorted(dead)
            if owners[broker]
        ]
