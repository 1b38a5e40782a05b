"""Faults in the ownership channel (PIP-192): since when they exist, and how to repair them.

**Clocks.** The clock of an entry's writer may be wrong by any amount. If an entry arrived while this process followed
the channel, its age is the time since its arrival (`seen_ms`), by the clock of this process. Entries with `seen_ms` up
to `Watching.from_ms` existed before. Only the writer's time shows their age, so it is used unless it is later than
`seen_ms`. So a writer's slow clock does not cause an early report of a new entry, and a restart of this process does
not restart a deadline. Brokers use the writer's time, too, when they repair.

Source: `ServiceUnitStateChannelImpl.monitorOwnerships`, `handleBrokerDeletionEvent`, `overrideOwnership`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Final

from bundlekeel.model.channel_states import IN_FLIGHT, RejectedUnit, ServiceUnit, UnitState, owner_of
from bundlekeel.model.codes import ExplainedCode
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import CodecError
from bundlekeel.model.names import parse_bundle
from bundlekeel.model.numbers import MAX_INT, integer
from bundlekeel.pulsar.channel.ranges import Ranges

# The metadata-store variant shows the writes of a split in any order. After this time all writes have arrived.
_SETTLED_MS: Final = 2_000


class FindingCode(ExplainedCode):
    """Codes of the faults in the ownership channel, each with an explanation."""

    IN_FLIGHT_TOO_LONG = ("InFlightTooLong", "the bundle is assigned, released or split for longer than brokers allow")
    OWNER_NOT_ALIVE = ("OwnerNotAlive", "the broker that owns, releases or splits the bundle is not registered")
    TARGET_NOT_ALIVE = "TargetNotAlive", "the bundle is in transit to a broker that is not registered"
    SPLIT_CHILDREN_MISSING = "SplitChildrenMissing", "the bundle was split, but no broker has taken over its children"
    TOMBSTONE_OVERDUE = "TombstoneOverdue", "the entry of a bundle without owner should have been removed by now"
    OWNED_TWICE = "OwnedTwice", "two entries, or two brokers, claim the same hashes at the same time"
    # The sidecar (`ChannelWatch`) reports these. They are about brokers, not single bundles.
    OWNER_UNREACHABLE = "OwnerUnreachable", "a broker that owns bundles is registered, but refuses connections"
    VARIANT_DISAGREES = "VariantDisagrees", "brokers keep the channel in different places, or it is being migrated"


FINDINGS: Final = {code: code.explanation for code in FindingCode}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFinding(Answer):
    """One fault in the ownership channel.

    Before `deadline_ms` the remedy is to wait for the brokers, afterwards to act.
    """

    code: Annotated[FindingCode, Doc("kind of the fault", grows=FindingCode)]
    bundle: Annotated[str, Doc("the bundle; empty: the fault concerns a broker or the whole channel")]
    brokers: Annotated[tuple[str, ...], Doc("the brokers concerned, the one at fault first")]
    state: Annotated[UnitState | None, Doc("state of the bundle's entry; null: no entry", grows=UnitState)]
    since_ms: Annotated[int, Doc("start of the fault")]
    deadline_ms: Annotated[
        int, Doc("time by which brokers should have repaired the fault; 0: brokers do not repair it")
    ]
    detail: Annotated[str, Doc("description of the fault")]
    remedy: Annotated[str, Doc("how to fix it")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines(Answer):
    """Times after which brokers repair the ownership channel, from their settings."""

    in_flight_ms: Annotated[int, Doc("milliseconds that an assignment, release or split takes at most")] = 30_000
    monitor_ms: Annotated[int, Doc("milliseconds between two checks by the leader broker's monitor")] = 60_000
    tombstone_ms: Annotated[int, Doc("milliseconds until the entry of a bundle without owner is deleted")] = 3_600_000
    load_data_ms: Annotated[int, Doc("milliseconds until the load data of a broker is too old")] = 1_800_000

    @classmethod
    def of(cls, configuration: Mapping[str, object]) -> Deadlines:
        """Return the times in a broker's runtime configuration. Missing or invalid values get Pulsar's default."""
        configured: dict[str, int] = {}
        for key, (name, unit_ms) in DEADLINE_KEYS.items():
            with suppress(CodecError):
                configured[name] = unit_ms * integer(configuration.get(key), field=key, lowest=1, highest=MAX_INT)
        return cls(**configured)


DEADLINE_KEYS: Final = {
    "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": ("in_flight_ms", 1),
    "loadBalancerServiceUnitStateMonitorIntervalInSeconds": ("monitor_ms", 1000),
    "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds": ("tombstone_ms", 1000),
    "loadBalancerBrokerLoadDataTTLInSeconds": ("load_data_ms", 1000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """Times by the clock of this process that `findings` needs.

    `from_ms`: Unix time in ms at which this process had read the whole channel for the first time (0: do not use the
    writers' clocks). `gone_ms`: see `Absences.note`.
    """

    from_ms: int = 0
    gone_ms: Mapping[str, int] = field(default_factory=dict)


UNWATCHED: Final = Watching()


class Absences:
    """Records since when brokers are no longer registered, by the clock of this process."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._gone: dict[str, int] = {}

    def note(self, registered: Collection[str], now_ms: int) -> dict[str, int]:
        """Add the brokers registered now. Returns since when each former broker is not registered (Unix ms)."""
        present = set(registered)
        self._gone = {broker: self._gone.get(broker, now_ms) for broker in self._known - present}
        self._known |= present
        return dict(self._gone)


def findings(
    units: Mapping[str, ServiceUnit],
    seen_ms: Mapping[str, int],
    rejected: Iterable[RejectedUnit],
    registered: Collection[str] | None,
    deadlines: Deadlines,
    now_ms: int,
    boundaries: Mapping[str, Sequence[int]] | None = None,
    *,
    watching: Watching = UNWATCHED,
) -> tuple[ChannelFinding, ...]:
    """Return all faults of the channel at `now_ms`, by code, then bundle. Times are Unix ms.

    `units`, `seen_ms`, `rejected`: as in `ChannelView`. `registered`: the live brokers; None: unknown. Read these
    after the channel, otherwise a new broker counts as failed. `boundaries`: hash boundaries of the bundles of each
    namespace, as far as known.
    """
    watch = _Watch(
        units=units,
        seen_ms=seen_ms,
        registered=None if registered is None else frozenset(registered),
        deadlines=deadlines,
        now_ms=now_ms,
        boundaries=boundaries or {},
        watching=watching,
    )
    faults = [*watch.states(), *watch.overlaps(), *watch.claims(rejected)]
    order = {code: index for index, code in enumerate(FindingCode)}
    return tuple(sorted(faults, key=lambda one: (order[one.code], one.bundle, one.brokers, one.since_ms)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """The inputs of `findings`, with the rules that find faults in them."""

    units: Mapping[str, ServiceUnit]
    seen_ms: Mapping[str, int]
    registered: frozenset[str] | None
    deadlines: Deadlines
    now_ms: int
    boundaries: Mapping[str, Sequence[int]]
    watching: Watching
    ranges: Ranges = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranges", Ranges(self.units))

    def states(self) -> Iterator[ChannelFinding]:
        """Yield the faults that are visible in a single entry."""
        limits = self.deadlines
        for bundle, unit in self.units.items():
            state = unit.state
            if state is UnitState.OWNED:
                yield from self._absent(FindingCode.OWNER_NOT_ALIVE, bundle, unit, unit.destination)
                continue
            since = self._since(bundle, unit)
            if state in IN_FLIGHT:
                if state is not UnitState.ASSIGNING:
                    yield from self._absent(FindingCode.OWNER_NOT_ALIVE, bundle, unit, unit.source)
                if state is not UnitState.SPLITTING and unit.destination:
                    yield from self._absent(FindingCode.TARGET_NOT_ALIVE, bundle, unit, unit.destination)
                if self.now_ms - since > limits.in_flight_ms:
                    yield self._too_long(bundle, unit, since)
            elif self.now_ms - since > limits.tombstone_ms + limits.monitor_ms:
                yield self._overdue(bundle, unit, since)
            if unit.state in _PARENTS and self.now_ms - since > limits.in_flight_ms:
                yield from self._childless(bundle, unit, since)

    def overlaps(self) -> Iterator[ChannelFinding]:
        """Yield active entries of one namespace whose ranges overlap."""
        for first, second in self.ranges.overlaps():
            since = max(self._since(first.bundle, first.unit), self._since(second.bundle, second.unit))
            if self.now_ms - since < _SETTLED_MS:
                continue
            owners = tuple(owner.broker_id for item in (first, second) if (owner := owner_of(item.unit)) is not None)
            yield ChannelFinding(
                code=FindingCode.OWNED_TWICE,
                bundle=second.bundle,
                brokers=owners,
                state=second.unit.state,
                since_ms=since,
                deadline_ms=0,
                detail=f"{first.bundle} is {first.unit.state} too and overlaps it",
                remedy=self._which_is_left_over(first.bundle, second.bundle, owners),
            )

    def claims(self, rejected: Iterable[RejectedUnit]) -> Iterator[ChannelFinding]:
        """Yield brokers that recently wrote themselves as owner of a bundle, but lost against its current entry."""
        first: dict[tuple[str, str], int] = {}
        for lost in rejected:
            current = self.units.get(lost.bundle)
            # A claim that is older than the current entry, or is read again after a gap, is not a dispute.
            if lost.unit.state is not UnitState.OWNED or current is None or lost.unit.version < current.version:
                continue
            if lost.unit.destination != current.destination:
                since = self._earlier(lost.wall_ms, lost.unit.timestamp_ms)
                key = (lost.bundle, lost.unit.destination)
                first[key] = min(since, first.get(key, since))
        for (bundle, broker), since in first.items():
            if self.now_ms - since <= self.deadlines.monitor_ms:
                yield self._claimed(bundle, broker, since)

    # --- ages --------------------------------------------------------------------------------------------

    def _since(self, bundle: str, unit: ServiceUnit) -> int:
        return self._earlier(self.seen_ms.get(bundle, self.now_ms), unit.timestamp_ms)

    def _earlier(self, seen_ms: int, written_ms: int) -> int:
        """Return when an entry was written: its arrival in this process, or for older entries the writer's time."""
        return seen_ms if seen_ms > self.watching.from_ms or written_ms <= 0 else min(seen_ms, written_ms)

    # --- findings ----------------------------------------------------------------------------------------

    def _absent(self, code: FindingCode, bundle: str, unit: ServiceUnit, broker: str) -> Iterator[ChannelFinding]:
        if self.registered is None or broker in self.registered:
            return
        since = max(self.seen_ms.get(bundle, self.now_ms), self.watching.gone_ms.get(broker, 0))
        deadline = since + self.deadlines.in_flight_ms + self.deadlines.monitor_ms
        wait = "gives the bundle to a live broker, 180 s later if its metadata session was interrupted"
        yield ChannelFinding(
            code=code,
            bundle=bundle,
            brokers=(broker,),
            state=unit.state,
            since_ms=since,
            deadline_ms=deadline,
            detail=f"{unit.state}, and {broker or 'no broker'} is not registered",
            remedy=self._monitor(deadline, wait, f"start {broker} again, or " if broker else ""),
        )

    def _too_long(self, bundle: str, unit: ServiceUnit, since: int) -> ChannelFinding:
        deadline = since + self.deadlines.in_flight_ms + self.deadlines.monitor_ms
        # The first broker is the one that must act next: the source closes the topics, the destination loads them.
        ends = (unit.destination, unit.source) if unit.state is UnitState.ASSIGNING else (unit.source, unit.destination)
        brokers = tuple(broker for broker in ends if broker)
        awaited = f", waiting for {brokers[0]}" if brokers else ""
        begins_anew = "starts the split again on another broker"
        return ChannelFinding(
            code=FindingCode.IN_FLIGHT_TOO_LONG,
            bundle=bundle,
            brokers=brokers,
            state=unit.state,
            since_ms=since,
            deadline_ms=deadline,
            detail=f"{unit.state} {_way(unit)} for more than {_seconds(self.deadlines.in_flight_ms)}{awaited}",
            remedy=self._monitor(
                deadline, begins_anew if unit.state is UnitState.SPLITTING else "makes a broker own it"
            ),
        )

    def _overdue(self, bundle: str, unit: ServiceUnit, since: int) -> ChannelFinding:
        harm = "lookups of it fail until then" if unit.state is UnitState.DELETED else "a lookup still assigns it"
        deadline = since + self.deadlines.tombstone_ms + self.deadlines.monitor_ms
        return ChannelFinding(
            code=FindingCode.TOMBSTONE_OVERDUE,
            bundle=bundle,
            brokers=(unit.source,) if unit.source else (),
            state=unit.state,
            since_ms=since,
            deadline_ms=deadline,
            detail=f"{unit.state} for more than {_seconds(self.deadlines.tombstone_ms)}; {harm}",
            remedy=self._monitor(deadline, "removes the entry"),
        )

    def _childless(self, bundle: str, unit: ServiceUnit, since: int) -> Iterator[ChannelFinding]:
        namespace = bundle[:-22]
        missing = sorted(child for child in unit.children if not self.ranges.covered(f"{namespace}/{child}"))
        unknown = unit.state is UnitState.DELETED and not unit.children
        if not missing and not (unknown and not self.ranges.covered(bundle, itself=False)):
            return
        limits = self.deadlines
        if unit.state is UnitState.SPLITTING:
            deadline = since + limits.in_flight_ms + limits.monitor_ms
            remedy = self._monitor(deadline, "starts the split again on another broker")
        elif self._is_bundle(bundle) is False:
            deadline, remedy = 0, "nothing: the next lookup of a topic in them assigns them"
        else:
            deadline = since + limits.tombstone_ms + limits.monitor_ms
            remedy = self._monitor(deadline, f"removes the entry {_seconds(limits.tombstone_ms)} after the split")
        yield ChannelFinding(
            code=FindingCode.SPLIT_CHILDREN_MISSING,
            bundle=bundle,
            brokers=(unit.source,) if unit.source else (),
            state=unit.state,
            since_ms=since,
            deadline_ms=deadline,
            detail=f"{unit.state}, without an entry for {', '.join(missing[:5]) or 'anything inside it'}",
            remedy=remedy,
        )

    def _claimed(self, bundle: str, broker: str, since: int) -> ChannelFinding:
        current = self.units[bundle]
        owner = owner_of(current)
        namespace, _, bounds = bundle.rpartition("/")
        return ChannelFinding(
            code=FindingCode.OWNED_TWICE,
            bundle=bundle,
            brokers=(broker, owner.broker_id) if owner is not None else (broker,),
            state=current.state,
            since_ms=since,
            deadline_ms=since + self.deadlines.monitor_ms,
            detail=f"{broker} claimed it and lost against {current.state} {_way(current)}",
            remedy=f"nothing: every broker resolves it alike; if clients of {broker} still see the bundle there: "
            f"pulsar-admin namespaces unload {namespace} --bundle {bounds}",
        )

    # --- remedies ----------------------------------------------------------------------------------------

    def _monitor(self, deadline: int, does: str, instead: str = "") -> str:
        if self.now_ms <= deadline:
            return f"nothing: the leader broker's monitor (every {_seconds(self.deadlines.monitor_ms)}) {does}"
        return (
            f"{instead}restart the leader broker, whose monitor should have repaired it (pulsar-admin brokers "
            "leader-broker names it): the monitor of a new leader runs at once"
        )

    def _is_bundle(self, bundle: str) -> bool | None:
        """Return whether the namespace's policies still contain this bundle; None: they are unknown."""
        name = parse_bundle(bundle)
        bounds = self.boundaries.get(name.namespace)
        return None if bounds is None else (name.lower, name.upper) in pairwise(bounds)

    def _which_is_left_over(self, first: str, second: str, owners: Sequence[str]) -> str:
        for bundle, other, broker in ((first, second, owners[0]), (second, first, owners[-1])):
            if self._is_bundle(bundle) is False and self._is_bundle(other):
                return f"restart {broker}, which gives {bundle} up: it is not a bundle of the namespace any more"
        return (
            f"pulsar-admin namespaces bundles {parse_bundle(first).namespace} shows which of the two exists; "
            "restart the broker that owns the other"
        )


_PARENTS: Final = frozenset({UnitState.SPLITTING, UnitState.DELETED})


def _way(unit: ServiceUnit) -> str:
    """Return the brokers of an entry in words, such as "from A to B"."""
    source, target = f"from {unit.source}" if unit.source else "", f"to {unit.destination}" if unit.destination else ""
    if unit.state is UnitState.OWNED:
        source, target = "", f"by {unit.destination}"
    return " ".join(part for part in (source, target) if part)


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:g} s"
