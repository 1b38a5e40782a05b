"""Measure whether moves helped: compare the predicted loads of source and target with the reported loads. Pure.

All moves from one broker to another that reports show at the same time are judged together, because a report shows only
their sum. The compared value is the load of the more loaded of the two brokers (the peak, a ratio), which a move should
lower. It is scaled by the cluster's mean, so that a change of the whole traffic does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from bundlekeel.model.codes import EFFECTS
from bundlekeel.model.plan import Move, Plan
from bundlekeel.model.scalable import changed_brokers
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.relocation import NOT_FOR_BALANCE

# Smaller predicted gains are within the error of reports, so they are not judged.
LEAST_GAIN: Final = 0.01
# A move helped if this share of the predicted gain is real. The same share in the wrong direction is "worse".
HELPED_SHARE: Final = 0.25
WORSE_LEAST: Final = 0.02
KEPT_EFFECTS: Final = 200
# A predicted gain is computed from the bundles' short-term averages: ten samples, of a minute if brokers report them.
AVERAGED_MS: Final = 600_000
# The record of a pair is dropped if no bundle has moved between the two brokers for this long.
FORGET_MS: Final = 86_400_000

HELPED, NO_BENEFIT, WORSE = EFFECTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEffect:
    """A started move whose effect is not known yet.

    It contains the scores (ratios) of both brokers before the move, and the predicted scores after all moves that have
    started since. `mean`: mean score of all brokers before the move.
    """

    move: Move
    at_ms: int
    mean: float
    source_before: float
    target_before: float
    source_after: float
    target_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Measured effect of the moves from one broker to another.

    `predicted`, `realised`: decrease of the higher score of the two brokers, as a ratio of capacity (negative:
    increase). `word`: helped, no_benefit or worse.
    """

    source: str
    target: str
    bundles: tuple[str, ...]
    at_ms: int
    begun_ms: int
    predicted: float
    realised: float
    word: str

    def record(self) -> dict[str, Any]:
        """Return the effect as a record of the journal."""
        count, way = len(self.bundles), "up" if self.realised < 0 else "down"
        return {
            "kind": "effect",
            "wall_ms": self.at_ms,
            "source": self.source,
            "destination": self.target,
            "bundles": list(self.bundles),
            "begun_ms": self.begun_ms,
            "predicted": round(self.predicted, 5),
            "realised": round(self.realised, 5),
            "outcome": self.word,
            "sentence": f"{numbered(count, 'move')} {self.source} -> {self.target}: "
            f"{self.word.replace('_', ' ')}, the peak of the two went {way} by {abs(self.realised):.1%} of capacity, "
            f"{self.predicted:.1%} predicted",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord:
    """How often in a row (`useless`) moves from `source` to `target` did not help.

    `at_ms`: when that was last found (Unix ms). `until_ms`: nothing moves from `source` to `target` before this time;
    0: no such limit.
    """

    source: str
    target: str
    useless: int
    at_ms: int
    until_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRecords:
    """Moves whose effects are measured, and the results.

    `open`: moves whose effect is not known yet. `judged`: the last known effects. `pairs`: source and target brokers
    whose moves did not help. `reverted`: bundles that have moved back once, and when (Unix ms).
    """

    open: tuple[ExpectedEffect, ...] = ()
    judged: tuple[Effect, ...] = ()
    pairs: tuple[PairRecord, ...] = ()
    reverted: tuple[tuple[str, int], ...] = ()

    def quarantined(self, now_ms: int) -> dict[tuple[str, str], int]:
        """Return the pairs (source, target) without moves for now, as moves did not help; value: end (Unix ms)."""
        return {(pair.source, pair.target): pair.until_ms for pair in self.pairs if pair.until_ms > now_ms}


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRules:
    """Rule that stops moves between two brokers for a time.

    After `quarantine_after` results in a row without benefit, nothing moves from the source to the target for
    `quarantine_ms`.
    """

    quarantine_after: int = 3
    quarantine_ms: int = 3_600_000


def begun(book: EffectRecords, moves: Sequence[Move], plan: Plan, now_ms: int) -> EffectRecords:
    """Record the started moves of this plan, so that their effects are measured; return the new records.

    Earlier moves of the same brokers whose effect is not known yet get the new predicted loads.
    """
    loads = {load.broker: load for load in plan.loads}
    touched = {broker for move in moves for broker in (move.source, move.target) if broker in loads}
    after = {broker: loads[broker].score_after for broker in touched}
    names = {move.bundle for move in moves}
    still = tuple(
        replace(
            item,
            source_after=after.get(item.move.source, item.source_after),
            target_after=after.get(item.move.target, item.target_after),
        )
        for item in book.open
        if item.move.bundle not in names
    )
    fresh = tuple(
        ExpectedEffect(
            move=move,
            at_ms=now_ms,
            mean=plan.mean,
            source_before=loads[move.source].score_before,
            target_before=loads[move.target].score_before,
            source_after=after[move.source],
            target_after=after[move.target],
        )
        for move in moves
        # Moves that an operator requested or a policy requires are not for the balance, and are never reverted.
        if move.rule not in NOT_FOR_BALANCE and move.source in loads and move.target in loads
    )
    return replace(book, open=still + fresh)


def came_to_nothing(book: EffectRecords, bundle: str) -> EffectRecords:
    """Return the records without the move of a bundle that did not arrive at its target: it is not judged."""
    return replace(book, open=tuple(item for item in book.open if item.move.bundle != bundle))


def judge(
    book: EffectRecords,
    ledger: Ledger,
    snapshot: Snapshot,
    plan: Plan,
    rules: EffectRules,
    segments_changed: Mapping[str, int] = MappingProxyType({}),
) -> tuple[EffectRecords, tuple[Effect, ...]]:
    """Determine the effects of the open moves that the reports show now; return the records and the new effects.

    `ledger`: the moves that this snapshot does not show. `plan`: the plan for this snapshot. `segments_changed`: as in
    `GuardState`: moves are not judged if Pulsar moved load to or from one of their brokers meanwhile, or so shortly
    before that their prediction is wrong.
    """
    now_ms = snapshot.wall_ms
    in_books, unsettled = ledger.bundles(), ledger.unsettled()
    groups: dict[tuple[str, str], list[ExpectedEffect]] = {}
    for item in book.open:
        groups.setdefault((item.move.source, item.move.target), []).append(item)
    scores = {load.broker: load.score_before for load in plan.loads}
    effects, still, changed = [], list[ExpectedEffect](), changed_brokers(snapshot, segments_changed)
    for (source, target), group in groups.items():
        if unsettled & {source, target} or any(item.move.bundle in in_books for item in group):
            still += group
            continue
        since_ms = min(item.at_ms for item in group) - AVERAGED_MS
        if any(changed.get(broker, 0) > since_ms for broker in (source, target)):
            continue
        effect = _effect(group, snapshot, scores, plan.mean)
        if effect is not None:
            effects.append(effect)
    pairs = _pairs(book.pairs, effects, rules, now_ms)
    judged = (*book.judged, *effects)[-KEPT_EFFECTS:]
    reverted = tuple((bundle, at) for bundle, at in book.reverted if now_ms - at < FORGET_MS)
    return replace(book, open=tuple(still), judged=judged, pairs=pairs, reverted=reverted), tuple(effects)


def _effect(group: list[ExpectedEffect], snapshot: Snapshot, scores: Mapping[str, float], mean: float) -> Effect | None:
    """Return the common effect of moves between two brokers; None if it cannot be measured.

    A broker may have left, restarted or not reported since the last move, a bundle may be elsewhere, or the predicted
    gain is too small.
    """
    first, last = min(group, key=lambda item: item.at_ms), max(group, key=lambda item: item.at_ms)
    source, target = first.move.source, first.move.target
    for broker in (source, target):
        row = snapshot.broker_row(broker)
        if row < 0 or int(snapshot.brokers.start_timestamp[row]) > first.at_ms:
            return None
        if int(snapshot.brokers.last_update[row]) <= last.at_ms:
            return None
    bundles = tuple(sorted(item.move.bundle for item in group))
    if not _arrived(snapshot, bundles, target) or mean <= 0 or first.mean <= 0:
        return None
    before = max(first.source_before, first.target_before)
    predicted = before - max(last.source_after, last.target_after)
    if predicted < LEAST_GAIN:
        return None
    realised = before - max(scores[source], scores[target]) * first.mean / mean
    return Effect(
        source=source,
        target=target,
        bundles=bundles,
        at_ms=snapshot.wall_ms,
        begun_ms=first.at_ms,
        predicted=predicted,
        realised=realised,
        word=_word(predicted, realised),
    )


def _word(predicted: float, realised: float) -> str:
    if realised >= HELPED_SHARE * predicted:
        return HELPED
    return WORSE if realised < -max(WORSE_LEAST, HELPED_SHARE * predicted) else NO_BENEFIT


def _arrived(snapshot: Snapshot, bundles: Collection[str], target: str) -> bool:
    table, row = snapshot.bundles, snapshot.broker_row(target)
    arrived = [place for place in table.rows_named(set(bundles)) if int(table.owner[place]) == row]
    return len(arrived) == len(bundles)


def _pairs(
    pairs: Sequence[PairRecord], effects: Sequence[Effect], rules: EffectRules, now_ms: int
) -> tuple[PairRecord, ...]:
    records = {(pair.source, pair.target): pair for pair in pairs if now_ms - pair.at_ms < FORGET_MS}
    for effect in effects:
        key = (effect.source, effect.target)
        if effect.word == HELPED:
            records.pop(key, None)
            continue
        useless = (records[key].useless if key in records else 0) + 1
        until = now_ms + rules.quarantine_ms if useless >= rules.quarantine_after else 0
        records[key] = PairRecord(source=key[0], target=key[1], useless=useless, at_ms=now_ms, until_ms=until)
    return tuple(records.values())


def reversions(
    book: EffectRecords, effects: Sequence[Effect], moves: Mapping[str, Move], now_ms: int
) -> tuple[EffectRecords, tuple[Move, ...]]:
    """Return moves back for the moves that made the load worse, at most one per bundle, and the new records.

    `effects`: new effects. `moves`: the moves that caused them, by bundle.
    """
    done = {bundle for bundle, _ in book.reverted}
    back = tuple(
        replace(
            move,
            source=move.target,
            target=move.source,
            rule="revert",
            threshold=0.0,
            source_before=move.target_after,
            source_after=move.target_before,
            target_before=move.source_after,
            target_after=move.source_before,
            runner_up="",
        )
        for effect in effects
        if effect.word == WORSE
        for bundle in effect.bundles
        if bundle not in done and (move := moves.get(bundle)) is not None
    )
    noted = (*book.reverted, *((move.bundle, now_ms) for move in back))
    return replace(book, reverted=noted), back
