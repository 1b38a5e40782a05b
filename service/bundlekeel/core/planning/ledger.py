"""The ledger: moves whose effect the brokers' reports do not show yet. It is also the preallocated bundle data.

A planned or finished move debits its source and credits its target until **both** have reported later than the
landing plus one statistics and one host-usage interval, or a time-out. Two kinds of figures are corrected in two ways:

* traffic follows the bundle list of each report exactly: what the source still reports of a moved bundle is taken
  off, what the target does not report yet is put on;
* host usage (CPU, memory, network) is sampled once a minute over the minute before, so a report in between is half
  old: while a broker has open entries its host usage is held at what it was before the first of them (`Baseline`)
  and the entries' predicted pressure is applied to that.

Silence is information too: a broker rewrites its report when its usage has changed by more points than
`report_change_percent`. Silent for long enough, it is that near to its last report, and so is the prediction made to be
(`_corrected`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from bundlekeel.core.model.load import REPORTED_RESOURCES
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Move, Traffic4
from bundlekeel.core.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One move in the ledger. `landed_ms` is 0 while it is under way; the two flags say which side has settled."""

    bundle: str
    source: str
    target: str
    opened_ms: int
    landed_ms: int = 0
    traffic: Traffic4
    pressure: tuple[float, ...]
    source_settled: bool = False
    target_settled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A broker's host usage (cpu, direct memory, bandwidth in, out) before its first open entry."""

    broker: str
    usage: tuple[float, ...]
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledger as a value; every change makes a new one."""

    entries: tuple[LedgerEntry, ...] = ()
    baselines: tuple[Baseline, ...] = ()

    def bundles(self) -> frozenset[str]:
        """Bundles with an open entry."""
        return frozenset(entry.bundle for entry in self.entries)

    def under_way(self) -> frozenset[str]:
        """Bundles whose move has not landed yet."""
        return frozenset(entry.bundle for entry in self.entries if not entry.landed_ms)

    def unsettled(self) -> frozenset[str]:
        """Brokers whose report does not show all their moves yet."""
        return frozenset(baseline.broker for baseline in self.baselines)

    def not_yet_reported_bundles(self, params: Parameters, now_ms: int) -> frozenset[str]:
        """Bundles that landed so recently that their brokers had no time yet to report it."""
        until = now_ms - _silence_ms(params)
        return frozenset(entry.bundle for entry in self.entries if entry.landed_ms > until)

    def not_yet_reported(self, params: Parameters, now_ms: int) -> frozenset[str]:
        """Those of the unsettled that had no time yet to report a change: nothing is known of them but predictions."""
        until = now_ms - _silence_ms(params)
        sides = ((entry, broker) for entry in self.entries for broker in (entry.source, entry.target))
        return frozenset(
            broker
            for entry, broker in sides
            if _open_side(entry, broker) and (not entry.landed_ms or entry.landed_ms > until)
        )


def open_entries(ledger: Ledger, moves: Sequence[Move], snapshot: Snapshot, now_ms: int) -> Ledger:
    """Book these moves as under way. A bundle that moves again replaces its earlier entry."""
    held = {baseline.broker for baseline in ledger.baselines}
    baselines = list(ledger.baselines)
    entries = [entry for entry in ledger.entries if entry.bundle not in {move.bundle for move in moves}]
    for move in moves:
        entries.append(
            LedgerEntry(
                bundle=move.bundle,
                source=move.source,
                target=move.target,
                opened_ms=now_ms,
                traffic=move.traffic,
                pressure=move.pressure,
            )
        )
        for broker in (move.source, move.target):
            row = snapshot.broker_row(broker)
            if broker not in held and row >= 0:
                held.add(broker)
                baselines.append(_baseline(snapshot, row, now_ms))
    return Ledger(entries=tuple(entries), baselines=tuple(baselines))


def landed(ledger: Ledger, bundle: str, broker: str, at_ms: int) -> Ledger:
    """The bundle is owned by `broker` since `at_ms` (which may be another one than asked)."""
    entries = tuple(
        replace(entry, target=broker, landed_ms=at_ms, target_settled=False)
        if entry.bundle == bundle and not entry.landed_ms
        else entry
        for entry in ledger.entries
    )
    return _tidy(Ledger(entries=entries, baselines=ledger.baselines))


def parted(ledger: Ledger, bundle: str) -> Ledger:
    """The bundle was split: its traffic is told by its children from now on, its pressure until both sides settle."""
    entries = tuple(
        replace(entry, traffic=(0.0, 0.0, 0.0, 0.0)) if entry.bundle == bundle and entry.landed_ms else entry
        for entry in ledger.entries
    )
    return replace(ledger, entries=entries)


def dropped(ledger: Ledger, bundle: str) -> Ledger:
    """Nothing happened to the bundle: forget the entry."""
    entries = tuple(entry for entry in ledger.entries if entry.bundle != bundle)
    return _tidy(Ledger(entries=entries, baselines=ledger.baselines))


def settle(ledger: Ledger, snapshot: Snapshot, params: Parameters, now_ms: int) -> Ledger:
    """Close what the reports show by now, broker by broker.

    A broker settles when its report is later than its *last* landing by one statistics and one host-usage interval,
    when that landing is older than the time-out, or when it is gone or has restarted (then its books are void).
    """
    if not ledger.entries:
        return Ledger()
    ledger = _with_baselines(ledger, snapshot, now_ms)
    given_up_ms = now_ms - timeout_ms(params)
    settled = {baseline.broker for baseline in ledger.baselines if _shows(baseline, ledger, snapshot, params, now_ms)}
    alive = set(snapshot.brokers.ids) | {item.broker_id for item in snapshot.excluded}
    entries = []
    for entry in ledger.entries:
        source = entry.source_settled or entry.source in settled or entry.source not in alive
        target = entry.target_settled or entry.target in settled or entry.target not in alive
        # Never landed, or landed but one of its brokers has no usable report to show it: not waited for for ever.
        blind = not {entry.source, entry.target} <= set(snapshot.brokers.ids)
        overdue = (not entry.landed_ms or blind) and max(entry.opened_ms, entry.landed_ms) <= given_up_ms
        if not (source and target) and not overdue:
            entries.append(replace(entry, source_settled=source, target_settled=target))
    left = _tidy(Ledger(entries=tuple(entries), baselines=ledger.baselines))
    not_yet_reported = left.not_yet_reported(params, now_ms)
    baselines = (
        item if item.broker in not_yet_reported else _corrected(item, left, snapshot, params) for item in left.baselines
    )
    return Ledger(entries=left.entries, baselines=tuple(baselines))


def _with_baselines(ledger: Ledger, snapshot: Snapshot, now_ms: int) -> Ledger:
    """Add a baseline for each broker that has none yet: a bundle landed elsewhere, or the report came only now."""
    held = {baseline.broker for baseline in ledger.baselines}
    missing = {
        broker for entry in ledger.entries for broker in (entry.source, entry.target) if _open_side(entry, broker)
    } - held
    added = [_baseline(snapshot, row, now_ms) for row, broker in enumerate(snapshot.brokers.ids) if broker in missing]
    return Ledger(entries=ledger.entries, baselines=(*ledger.baselines, *added))


def _baseline(snapshot: Snapshot, row: int, now_ms: int) -> Baseline:
    usage = tuple(snapshot.brokers.usage[row, :REPORTED_RESOURCES].tolist())
    return Baseline(broker=snapshot.brokers.ids[row], usage=usage, since_ms=now_ms)


def _shows(baseline: Baseline, ledger: Ledger, snapshot: Snapshot, params: Parameters, now_ms: int) -> bool:
    """Whether the broker's report is to be believed again: it contains all its moves in full, or never will."""
    row = snapshot.broker_row(baseline.broker)
    if row < 0:
        return False
    if int(snapshot.brokers.start_timestamp[row]) > baseline.since_ms:
        return True
    if any(not entry.landed_ms and _open_side(entry, baseline.broker) for entry in ledger.entries):
        return False
    last = _last_landing(baseline.broker, ledger)
    reported = int(snapshot.brokers.last_update[row])
    # What was measured wholly after a landing shows it.
    wait_ms = snapshot.interval_ms(row) or _wait_ms(params)
    return reported >= last + wait_ms or now_ms >= last + timeout_ms(params)


def timeout_ms(params: Parameters) -> int:
    """A move shows in a report after this long, however quiet the broker: the longest interval between two reports
    after the figures are new, and one round of figures for those that come late."""
    late = max(params.statistics_interval_seconds, params.host_usage_interval_seconds)
    return _wait_ms(params) + int(1000 * (params.report_max_interval_seconds + late))


def _wait_ms(params: Parameters) -> int:
    """A report this much later than a landing cannot be older than the landing in any of its figures."""
    return int(1000 * (params.statistics_interval_seconds + params.host_usage_interval_seconds))


def _silence_ms(params: Parameters) -> int:
    """After this long a broker would have reported a larger change; it looks for one twice within the slack."""
    return _wait_ms(params) + int(2000 * params.report_min_interval_seconds)


def _corrected(baseline: Baseline, ledger: Ledger, snapshot: Snapshot, params: Parameters) -> Baseline:
    """The baseline of a silent broker, shifted so that the prediction is no further from its report than can be.

    A report written since the last landing may show a part of the moves only, but no less than nothing of them: who
    took on balance uses what it reported or more, who gave uses that or less.
    """
    row = snapshot.broker_row(baseline.broker)
    if row < 0:
        return baseline
    weights = (params.cpu_weight, params.direct_memory_weight, params.bandwidth_in_weight, params.bandwidth_out_weight)
    usage = list(baseline.usage)
    since = _last_landing(baseline.broker, ledger) <= int(snapshot.brokers.last_update[row])
    for resource, weight in enumerate(weights):
        limit, reported = (float(table[row, resource]) for table in (snapshot.brokers.limit, snapshot.brokers.usage))
        if weight > 0 and limit > 0:
            moved = _moved(baseline.broker, ledger, resource)
            band = params.report_change_percent / 100 * limit
            least = reported if since and moved > 0 else reported - band
            most = reported if since and moved < 0 else reported + band
            usage[resource] = min(max(usage[resource] + moved, least), most) - moved
    return replace(baseline, usage=tuple(usage))


def _moved(broker: str, ledger: Ledger, resource: int) -> float:
    """What the open entries add to a broker's usage of a resource."""
    return math.fsum(
        entry.pressure[resource]
        * (
            (entry.target == broker and not entry.target_settled)
            - (entry.source == broker and not entry.source_settled)
        )
        for entry in ledger.entries
    )


def _last_landing(broker: str, ledger: Ledger) -> int:
    """When the last of the moves that a broker's report does not show yet landed; 0 without any."""
    return max((entry.landed_ms for entry in ledger.entries if _open_side(entry, broker)), default=0)


def _open_side(entry: LedgerEntry, broker: str) -> bool:
    return (entry.source == broker and not entry.source_settled) or (
        entry.target == broker and not entry.target_settled
    )


def _tidy(ledger: Ledger) -> Ledger:
    """Keep baselines only of brokers that still have an open side."""
    concerned = {entry.source for entry in ledger.entries if not entry.source_settled} | {
        entry.target for entry in ledger.entries if not entry.target_settled
    }
    return Ledger(
        entries=ledger.entries,
        baselines=tuple(baseline for baseline in ledger.baselines if baseline.broker in concerned),
    )


def preallocated(ledger: Ledger, brokers: Collection[str], now_ms: int) -> dict[str, list[tuple[str, float]]]:
    """Per target broker: bundles on their way or not yet in its report, with their age in seconds."""
    found: dict[str, list[tuple[str, float]]] = {broker: [] for broker in brokers}
    for entry in ledger.entries:
        if entry.target in found and not entry.target_settled:
            found[entry.target].append((entry.bundle, (now_ms - entry.opened_ms) / 1000))
    return found
