"""Bundlekeel's own strategies in `bundlekeel decide`: run the sidecar's `plan()` on the load reports of each line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET

from bundlekeel.compat.decide_extensible import MAX_RECORD_BYTES, TransferTurn, is_extensible, refuse_extensible
from bundlekeel.compat.decide_lines import InputLine, parse_capacity, parse_policies
from bundlekeel.model.averages import Averages
from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.errors import CodecError
from bundlekeel.model.extensible import is_rest
from bundlekeel.model.load import BrokerReport, BundleAverages, ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.model.policies import Policies
from bundlekeel.model.snapshot import Snapshot, build_snapshot
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.pulsar.formats.records import decode_bundle_data
from bundlekeel.pulsar.formats.report import decode_report, unreadable_figure

_UNLIMITED: Final = 2**31
# No budgets, and no splits, which nothing would execute.
BUDGETS: Final[dict[str, Any]] = {
    **dict.fromkeys(
        ("max_moves_per_cycle", "max_moves_per_source", "max_moves_per_target", "max_moves_per_namespace"), _UNLIMITED
    ),
    "split_enabled": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModularTurn:
    """One line of input for the modular load manager: the reports as text, and decoded averages."""

    brokers: dict[str, msgspec.Raw]
    averages: Averages
    now: int | None
    capacity: tuple[CapacityOverride, ...]
    guard: GuardState
    policies: Policies

    def guard_at(self, _now: int) -> GuardState:
        """Return the moves that the input line declares recent."""
        return self.guard

    def snapshot(self) -> Snapshot:
        """Decode the reports into a snapshot."""
        return self.snapshot_of(*read_reports(self.brokers))

    def snapshot_of(self, reports: list[BrokerReport], unread: list[ExcludedBroker]) -> Snapshot:
        """Return the snapshot of decoded reports."""
        return build_snapshot(
            reports=reports,
            averages=self.averages,
            wall_ms=self.now if self.now is not None else _newest(reports),
            excluded=unread,
            capacity=self.capacity,
        )


@dataclass(slots=True)
class CorrectedDecider:
    """Plans moves for each input line (load reports of either load manager) with a strategy of Bundlekeel.

    `memory`: state of the strategy, kept from one line to the next. `turn`: last input line; None before the first.
    """

    params: Parameters
    seed: int = 0
    memory: StrategyMemory = field(default_factory=StrategyMemory)
    turn: ModularTurn | TransferTurn | None = None

    def answer(self, line: InputLine) -> dict[str, Any]:
        """Return moves, refusals and verdicts for an input line."""
        if self.params.strategy == "transfer" and is_extensible(line):
            return self._extensible(TransferTurn.of(line))
        refuse_extensible(line)
        return self._modular(line)

    def decode(self) -> Callable[[], object] | None:
        """Decode the last input line again; return a function that plans it, or None before the first line."""
        turn = self.turn
        if turn is None:
            return None
        snapshot = turn.snapshot() if isinstance(turn, ModularTurn) else turn.snapshot()[0]
        return lambda: self._plan(turn, snapshot)

    def _modular(self, line: InputLine) -> dict[str, Any]:
        brokers = {} if line.brokers is UNSET else line.brokers
        capacity = parse_capacity(line.capacity)
        reports, unread = read_reports(brokers)
        stored, torn = _read_bundles(line.bundles or {})
        now = line.now if line.now is not None else _newest(reports)
        # The caller declares these moves recent. The time 1 ms after now makes them so even with a cool-down of 0 s.
        recent = {name: RecentMove(at_ms=now + 1, source="") for name in line.recent or ()}
        turn = ModularTurn(
            brokers=brokers,
            averages=_averages(stored, reports),
            now=line.now,
            capacity=capacity,
            guard=GuardState(recent=recent),
            policies=parse_policies(line.policies),
        )
        decision = self._plan(turn, turn.snapshot_of(reports, unread))
        self.turn = turn
        faults = [{"broker": item.broker_id, "code": item.code, "detail": item.detail} for item in unread]
        return _render(decision, [*faults, *torn])

    def _extensible(self, turn: TransferTurn) -> dict[str, Any]:
        self.turn = turn
        snapshot, unread = turn.snapshot()
        answer = _render(self._plan(turn, snapshot), unread)
        answer["refused"] = [item for item in answer["refused"] if not is_rest(item["bundle"])]
        return answer

    def _plan(self, turn: ModularTurn | TransferTurn, snapshot: Snapshot) -> Plan:
        result = plan(
            PlanInput(
                snapshot=snapshot,
                params=self.params,
                memory=self.memory,
                guard=turn.guard_at(snapshot.wall_ms),
                policies=turn.policies,
                seed=self.seed,
            )
        )
        self.memory = result.memory
        return result.plan


def read_reports(brokers: dict[str, msgspec.Raw]) -> tuple[list[BrokerReport], list[ExcludedBroker]]:
    """Return the decoded reports, and the brokers whose report cannot be read."""
    reports: list[BrokerReport] = []
    unread: list[ExcludedBroker] = []
    for broker, raw in brokers.items():
        try:
            report = decode_report(broker, raw, max_bytes=MAX_RECORD_BYTES)
            if fault := unreadable_figure(report):
                # Pulsar's mapper rejects such a record. With 0 as value, the broker would attract bundles.
                raise CodecError(f"{fault[1]} cannot be read", code=fault[0])
            reports.append(report)
        except CodecError as error:
            unread.append(ExcludedBroker(broker_id=broker, code=str(error.code), detail=str(error)))
    return reports, unread


def _read_bundles(bundles: dict[str, msgspec.Raw]) -> tuple[list[BundleAverages], list[dict[str, str]]]:
    stored: list[BundleAverages] = []
    torn: list[dict[str, str]] = []
    for name, raw in bundles.items():
        try:
            stored.append(decode_bundle_data(name, raw))
        except CodecError as error:
            torn.append({"bundle": name, "code": str(error.code), "detail": str(error)})
    return stored, torn


def _averages(stored: list[BundleAverages], reports: list[BrokerReport]) -> Averages:
    """Return the stored averages; a bundle without an average gets one sample, from the newest report that lists it."""
    averages = Averages()
    averages.seed(stored)
    missing: dict[str, BundleAverages] = {}
    for report in sorted(reports, key=lambda item: item.last_update):
        unknown = set(averages.unknown(report.bundle_names))
        if not unknown:
            continue
        rows = zip(report.bundle_names, report.bundle_traffic.tolist(), report.bundle_counts.tolist(), strict=True)
        for name, traffic, counts in rows:
            if name in unknown:
                rates = (traffic[0], traffic[1], traffic[2], traffic[3])
                missing[name] = BundleAverages(
                    bundle=name, short=rates, long=rates, short_samples=1, long_samples=1, topics=counts[0]
                )
    averages.seed(missing.values())
    return averages


def _newest(reports: list[BrokerReport]) -> int:
    return max((report.last_update for report in reports), default=0)


def _render(decision: Plan, excluded: list[dict[str, str]]) -> dict[str, Any]:
    unload: dict[str, list[str]] = {}
    for move in decision.moves:
        unload.setdefault(move.source, []).append(move.bundle)
    answer: dict[str, Any] = {
        "unload": unload,
        "to": {move.bundle: move.target for move in decision.moves},
        "verdict": {
            "code": decision.verdict.code,
            "sentence": decision.verdict.sentence,
            "brokers": [asdict(item) for item in decision.brokers],
        },
        "refused": [item._asdict() for item in decision.refusals],
        "plan_hash": decision.hash,
    }
    if excluded:
        answer["excluded"] = excluded
    return answer
