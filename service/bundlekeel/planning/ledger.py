"""The ledger: moves that the brokers' load reports do not show yet (in Pulsar: preallocated bundles).

A move in the ledger reduces the load of its source and increases that of its target. It stays there until **both** have
reported later than the landing (the new owner is confirmed) plus one statistics and one host-usage interval, or until a
time-out. Traffic and host usage are corrected in two ways:

* traffic follows the bundle list of each report: a moved bundle's traffic is subtracted while the source still reports
  it, and added while the target does not;
* host usage (CPU, memory, network) is sampled once a minute over the last minute, so a report can be a mixture. While a
  broker has open entries, its host usage is that before the first of them (`Baseline`), plus the entries' predicted
  pressure (usage that the bundles cause).

A missing report is information too: a broker reports again when its usage has changed by more than
`report_change_percent` points. If it does not report for long enough, its usage is that near to the last report, and
the prediction is corrected accordingly (`_corrected`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from bundlekeel.model.load import REPORTED_RESOURCES
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Traffic4
from bundlekeel.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One move in the ledger (the moves that load reports do not show yet).

    `opened_ms`: start of the move, Unix ms. `landed_ms`: time since which the target owns the bundle; 0: still moving.
    `pressure`: usage that the bundle causes, in the order of `RESOURCES`. `source_settled`, `target_settled`: whether
    the reports of this broker show the move.
    """

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
    """Host usage (cpu, direct memory, bandwidth in, out) of a broker before its moves that reports do not show yet.

    `since_ms`: when it was stored, Unix ms.
    """

    broker: str
    usage: tuple[float, ...]
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The moves that load reports do not show yet; immutable.

    `baselines`: host usage of the brokers before these moves.
    """

    entries: tuple[LedgerEntry, ...] = ()
    baselines: tuple[Baseline, ...] = ()

    def bundles(self) -> frozenset[str]:
        """Return the bundles whose moves load reports do not show yet."""
        return frozenset(entry.bundle for entry in self.entries)

    def under_way(self) -> frozenset[str]:
        """Return the bundles that are moving: their new owner is not confirmed yet."""
        return frozenset(entry.bundle for entry in self.entries if not entry.landed_ms)

    def unsettled(self) -> frozenset[str]:
        """Return the brokers whose report does not show all their moves yet."""
        return frozenset(baseline.broker for baseline in self.baselines)

    def not_yet_reported_bundles(self, params: Parameters, now_ms: int) -> frozenset[str]:
        """Return the bundles that arrived at their new owner so recently that no report can show it."""
        until = now_ms - _silence_ms(params)
        return frozenset(entry.bundle for entry in self.entries if entry.landed_ms > until)

    def not_yet_reported(self, params: Parameters, now_ms: int) -> frozenset[str]:
        """Return the brokers with moves so recent that no report can show them: their load is only predicted."""
        until = now_ms - _silence_ms(params)
        sides = ((entry, broker) for entry in self.entries for broker in (entry.source, entry.target))
        return frozenset(
            broker
            for entry, broker in sides
            if _open_side(entry, broker) and (not entry.landed_ms or entry.landed_ms > until)
        )


def open_entries(ledger: Ledger, moves: Sequence[Move], snapshot: Snapshot, now_ms: int) -> Ledger:
    """Add started moves to the ledger of moves that reports do not show yet.

    A bundle that moves again replaces its earlier entry.
    """
    present = {baseline.broker for baseline in ledger.baselines}
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
            if broker not in present and row >= 0:
                present.add(broker)
                baselines.append(_baseline(snapshot, row, now_ms))
    return Ledger(entries=tuple(entries), baselines=tuple(baselines))


def landed(ledger: Ledger, bundle: str, broker: str, at_ms: int) -> Ledger:
    """Record that `broker` has owned the bundle since `at_ms`, even if another broker was the planned target."""
    entries = tuple(
        replace(entry, target=broker, landed_ms=at_ms, target_settled=False)
        if entry.bundle == bundle and not entry.landed_ms
        else entry
        for entry in ledger.entries
    )
    return _tidy(Ledger(entries=entries, baselines=ledger.baselines))


def parted(ledger: Ledger, bundle: str) -> Ledger:
    """Record the split of a moved bundle: its children carry its traffic now; its predicted usage still counts."""
    entries = tuple(
        replace(entry, traffic=(0.0, 0.0, 0.0, 0.0)) if entry.bundle == bundle and entry.landed_ms else entry
        for entry in ledger.entries
    )
    return replace(ledger, entries=entries)


def dropped(ledger: Ledger, bundle: str) -> Ledger:
    """Drop the entry of a bundle that did not move after all."""
    entries = tuple(entry for entry in ledger.entries if entry.bundle != bundle)
    return _tidy(Ledger(entries=entries, baselines=ledger.baselines))


def settle(ledger: Ledger, snapshot: Snapshot, params: Parameters, now_ms: int) -> Ledger:
    """Return the ledger without the moves that the reports of both brokers show.

    A broker's report shows its moves if it is later than its *last* landing (confirmed new owner) by one statistics and
    one host-usage interval. Its moves also count as shown if the last landing is older than the time-out, or if the
    broker has left or restarted, which makes its entries invalid.
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
        # A move that never landed, or whose source or target has no usable report, is dropped after the time-out.
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
    """Add missing baselines (host usage of a broker before its moves that reports do not show yet).

    A baseline is missing if a bundle has arrived at another broker than planned, or if the first report of a broker has
    arrived.
    """
    present = {baseline.broker for baseline in ledger.baselines}
    missing = {
        broker for entry in ledger.entries for broker in (entry.source, entry.target) if _open_side(entry, broker)
    } - present
    added = [_baseline(snapshot, row, now_ms) for row, broker in enumerate(snapshot.brokers.ids) if broker in missing]
    return Ledger(entries=ledger.entries, baselines=(*ledger.baselines, *added))


def _baseline(snapshot: Snapshot, row: int, now_ms: int) -> Baseline:
    usage = tuple(snapshot.brokers.usage[row, :REPORTED_RESOURCES].tolist())
    return Baseline(broker=snapshot.brokers.ids[row], usage=usage, since_ms=now_ms)


def _shows(baseline: Baseline, ledger: Ledger, snapshot: Snapshot, params: Parameters, now_ms: int) -> bool:
    """Return whether the broker's report needs no correction: it shows all moves of the broker, or never will."""
    row = snapshot.broker_row(baseline.broker)
    if row < 0:
        return False
    if int(snapshot.brokers.start_timestamp[row]) > baseline.since_ms:
        return True
    if any(not entry.landed_ms and _open_side(entry, baseline.broker) for entry in ledger.entries):
        return False
    last = _last_landing(baseline.broker, ledger)
    reported = int(snapshot.brokers.last_update[row])
    # A measurement that started after the landing shows the move.
    wait_ms = snapshot.interval_ms(row) or _wait_ms(params)
    return reported >= last + wait_ms or now_ms >= last + timeout_ms(params)


def timeout_ms(params: Parameters) -> int:
    """Return the time after a move, in ms, after which a report shows it even if the broker's load hardly changes.

    It is the time until all values are new, plus the longest interval between two reports, plus one more interval of
    the values.
    """
    late = max(params.statistics_interval_seconds, params.host_usage_interval_seconds)
    return _wait_ms(params) + int(1000 * (params.report_max_interval_seconds + late))


def _wait_ms(params: Parameters) -> int:
    """Return the time after a move, in ms, after which a report contains only values from after the move."""
    return int(1000 * (params.statistics_interval_seconds + params.host_usage_interval_seconds))


def _silence_ms(params: Parameters) -> int:
    """Return the time, in ms, after which a broker has reported any larger change, even if it missed one check."""
    return _wait_ms(params) + int(2000 * params.report_min_interval_seconds)


def _corrected(baseline: Baseline, ledger: Ledger, snapshot: Snapshot, params: Parameters) -> Baseline:
    """Shift the baseline (host usage before moves) so that the predicted usage is near the broker's last report.

    It must be within `report_change_percent`: the broker would have reported a larger change. A report since the last
    landing (confirmed new owner) can show any part of the moves. So a broker that gained load uses at least the
    reported usage, and a broker that lost load uses at most the reported one.
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
    """Return the usage of one resource that a broker gains by moves that reports do not show yet (negative: loses)."""
    return math.fsum(
        entry.pressure[resource]
        * (
            (entry.target == broker and not entry.target_settled)
            - (entry.source == broker and not entry.source_settled)
        )
        for entry in ledger.entries
    )


def _last_landing(broker: str, ledger: Ledger) -> int:
    """Return when the last move of the broker ended that its reports do not show yet (Unix ms); 0: none."""
    return max((entry.landed_ms for entry in ledger.entries if _open_side(entry, broker)), default=0)


def _open_side(entry: LedgerEntry, broker: str) -> bool:
    return (entry.source == broker and not entry.source_settled) or (
        entry.target == broker and not entry.target_settled
    )


def _tidy(ledger: Ledger) -> Ledger:
    """Drop the baselines (host usage before moves) of brokers whose moves all show in reports."""
    concerned = {entry.source for entry in ledger.entries if not entry.source_settled} | {
        entry.target for entry in ledger.entries if not entry.target_settled
    }
    return Ledger(
        entries=ledger.entries,
        baselines=tuple(baseline for baseline in ledger.baselines if baseline.broker in concerned),
    )


def preallocated(ledger: Ledger, brokers: Collection[str], now_ms: int) -> dict[str, list[tuple[str, float]]]:
    """Return, by target broker, the arriving bundles that its report does not show yet.

    The number of each bundle is the time since its move started, in seconds.
    """
    by_broker: dict[str, list[tuple[str, float]]] = {broker: [] for broker in brokers}
    for entry in ledger.entries:
        if entry.target in by_broker and not entry.target_settled:
            by_broker[entry.target].append((entry.bundle, (now_ms - entry.opened_ms) / 1000))
    return by_broker
