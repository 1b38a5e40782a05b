"""Measuring the effect of moves: what was predicted for their two brokers, compared with what happened. Pure.

All moves from one broker to another that settle together are judged as one, because a report shows only their sum.
Compared is the load of the more loaded of the two brokers (the peak, a ratio), which a move should lower. It is scaled
by the cluster's mean, so that a change of the whole traffic does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bundlekeel.core.model.codes import EFFECTS
from bundlekeel.core.model.plan import Move, Plan
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.model.text_format import numbered
from bundlekeel.core.operations.relocation import NOT_FOR_BALANCE
from bundlekeel.core.planning.ledger import Ledger

# Smaller predicted gains are within what reports are off anyhow: they prove nothing.
LEAST_GAIN: Final = 0.01
# Of what was predicted, this much has to come true; as much in the wrong direction is worse than nothing.
HELPED_SHARE: Final = 0.25
WORSE_LEAST: Final = 0.02
KEPT_EFFECTS: Final = 200
# A pair that did not help is forgotten when nothing moved between the two for so long.
FORGET_MS: Final = 86_400_000

HELPED, NO_BENEFIT, WORSE = EFFECTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEffect:
    """One move whose effect is not known yet. Scores (ratios) of both brokers before, and as predicted when all moves
    begun since are done; `mean`: of all brokers before."""

    move: Move
    at_ms: int
    mean: float
    source_before: float
    target_before: float
    source_after: float
    target_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What moves from one broker to another came to. `predicted`, `realised`: how much the peak of the two went down,
    as ratio of capacity (negative: up). `word`: helped, no_benefit or worse."""

    source: str
    target: str
    bundles: tuple[str, ...]
    at_ms: int
    begun_ms: int
    predicted: float
    realised: float
    word: str

    def record(self) -> dict[str, Any]:
        """The journal line."""
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
    """How often in a row moves between two brokers did not help; `until_ms`: no more of them before, 0 for none."""

    source: str
    target: str
    useless: int
    at_ms: int
    until_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRecords:
    """Observed effects of moves as a value. `reverted`: bundles moved back once already, and when."""

    open: tuple[ExpectedEffect, ...] = ()
    judged: tuple[Effect, ...] = ()
    pairs: tuple[PairRecord, ...] = ()
    reverted: tuple[tuple[str, int], ...] = ()

    def quarantined(self, now_ms: int) -> dict[tuple[str, str], int]:
        """(source, target) pairs that may not be used now, and until when."""
        return {(pair.source, pair.target): pair.until_ms for pair in self.pairs if pair.until_ms > now_ms}


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRules:
    """`quarantine_after`: useless effects in a row; `quarantine_ms`: how long the pair then rests."""

    quarantine_after: int = 3
    quarantine_ms: int = 3_600_000


def begun(book: EffectRecords, moves: Sequence[Move], plan: Plan, now_ms: int) -> EffectRecords:
    """Moves of this plan are carried out. What was open between the same brokers now expects their sum."""
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
        # What an operator requested, or a policy demands, is not made for the balance, and never undone.
        if move.rule not in NOT_FOR_BALANCE and move.source in loads and move.target in loads
    )
    return replace(book, open=still + fresh)


def came_to_nothing(book: EffectRecords, bundle: str) -> EffectRecords:
    """The bundle did not land where it was to go: there is nothing to judge."""
    return replace(book, open=tuple(item for item in book.open if item.move.bundle != bundle))


def judge(
    book: EffectRecords, ledger: Ledger, snapshot: Snapshot, plan: Plan, rules: EffectRules
) -> tuple[EffectRecords, tuple[Effect, ...]]:
    """Judge what the reports show by now; `ledger` is settled with this snapshot, `plan` made on it."""
    now_ms = snapshot.wall_ms
    in_books, unsettled = ledger.bundles(), ledger.unsettled()
    groups: dict[tuple[str, str], list[ExpectedEffect]] = {}
    for item in book.open:
        groups.setdefault((item.move.source, item.move.target), []).append(item)
    scores = {load.broker: load.score_before for load in plan.loads}
    effects, still = [], list[ExpectedEffect]()
    for (source, target), group in groups.items():
        if unsettled & {source, target} or any(item.move.bundle in in_books for item in group):
            still += group
            continue
        found = _effect(group, snapshot, scores, plan.mean)
        if found is not None:
            effects.append(found)
    pairs = _pairs(book.pairs, effects, rules, now_ms)
    kept = (*book.judged, *effects)[-KEPT_EFFECTS:]
    reverted = tuple((bundle, at) for bundle, at in book.reverted if now_ms - at < FORGET_MS)
    return replace(book, open=tuple(still), judged=kept, pairs=pairs, reverted=reverted), tuple(effects)


def _effect(group: list[ExpectedEffect], snapshot: Snapshot, scores: Mapping[str, float], mean: float) -> Effect | None:
    """None when it cannot be told: a broker is gone or restarted, a bundle is elsewhere, the books closed unseen."""
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
    found = [place for place in table.rows_named(set(bundles)) if int(table.owner[place]) == row]
    return len(found) == len(bundles)


def _pairs(
    pairs: Sequence[PairRecord], effects: Sequence[Effect], rules: EffectRules, now_ms: int
) -> tuple[PairRecord, ...]:
    known = {(pair.source, pair.target): pair for pair in pairs if now_ms - pair.at_ms < FORGET_MS}
    for effect in effects:
        key = (effect.source, effect.target)
        if effect.word == HELPED:
            known.pop(key, None)
            continue
        useless = (known[key].useless if key in known else 0) + 1
        until = now_ms + rules.quarantine_ms if useless >= rules.quarantine_after else 0
        known[key] = PairRecord(source=key[0], target=key[1], useless=useless, at_ms=now_ms, until_ms=until)
    return tuple(known.values())


def reversions(
    book: EffectRecords, effects: Sequence[Effect], moves: Mapping[str, Move], now_ms: int
) -> tuple[EffectRecords, tuple[Move, ...]]:
    """Moves that take back what made things worse, each bundle once; `moves` are those that were judged, by bundle."""
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
