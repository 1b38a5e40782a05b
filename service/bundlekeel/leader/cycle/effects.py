"""Effects of moves: the leader judges them (`planning.effects`) and may revert harmful moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog

from bundlekeel.model.plan import Move, Plan
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning import effects as core
from bundlekeel.planning.effects import Effect, EffectRecords, EffectRules
from bundlekeel.planning.ledger import Ledger
from bundlekeel.ports import Telemetry

_log = structlog.get_logger(__name__)


class Effects:
    """Judges moves by their measured effects. The records are in the cycle's state, so a new leader continues with
    them."""

    def __init__(
        self,
        record: Callable[[Mapping[str, Any]], None],
        telemetry: Telemetry,
        *,
        rules: EffectRules | None = None,
        revert: bool = False,
    ) -> None:
        self._record = record
        self._telemetry = telemetry
        self._rules = rules or EffectRules()
        self._revert = revert
        self._back: tuple[Move, ...] = ()

    def judge(
        self,
        records: EffectRecords,
        ledger: Ledger,
        snapshot: Snapshot,
        plan: Plan,
        *,
        leading: bool,
        segments_changed: Mapping[str, int],
    ) -> EffectRecords:
        """Judge the moves whose effect is visible now, and return the updated records.

        A follower returns the leader's records unchanged."""
        if not leading:
            return records
        moves = {item.move.bundle: item.move for item in records.open}
        judged, effects = core.judge(records, ledger, snapshot, plan, self._rules, segments_changed)
        for effect in effects:
            self._publish(effect)
        self._telemetry.gauge("quarantined_pairs", len(judged.quarantined(snapshot.wall_ms)))
        if self._revert and effects:
            judged, self._back = core.reversions(judged, effects, moves, snapshot.wall_ms)
        return judged

    def take_back(self, snapshot: Snapshot) -> tuple[Move, ...]:
        """Return the moves that revert harmful moves, each only once, without bundles that have another owner by
        now."""
        back, self._back = {move.bundle: move for move in self._back}, ()
        table, ids = snapshot.bundles, snapshot.brokers.ids
        owners = {table.names[row]: ids[int(table.owner[row])] for row in table.rows_named(back)} if back else {}
        return tuple(move for bundle, move in back.items() if owners.get(bundle) == move.source)

    def _publish(self, effect: Effect) -> None:
        self._telemetry.count("moves_helped_total", len(effect.bundles), result=effect.word)
        self._telemetry.gauge("effect_error_ratio", effect.predicted - effect.realised)
        record = effect.record()
        self._record(record)
        _log.info("effect of moves determined", sentence=record["sentence"])


def joined(records: Iterable[dict[str, Any]], judged: Sequence[Effect]) -> list[dict[str, Any]]:
    """Return the records of moves, with the measured effect of each move if it was judged."""
    by_bundle: dict[str, list[Effect]] = {}
    for effect in judged:
        for bundle in effect.bundles:
            by_bundle.setdefault(bundle, []).append(effect)
    return [_joined(record, by_bundle.get(str(record.get("bundle")), ())) for record in records]


def _joined(record: dict[str, Any], judged: Sequence[Effect]) -> dict[str, Any]:
    at = int(record.get("landed_ms") or record.get("wall_ms") or 0)
    for effect in judged:
        if effect.begun_ms <= at <= effect.at_ms:
            return record | {
                "effect": effect.word,
                "predicted_gain": round(effect.predicted, 5),
                "realised_gain": round(effect.realised, 5),
            }
    return record
