"""Rules of adopted thresholds: which settings they override, their trial, and the revert. Pure.

An adoption overrides the settings parameter by parameter. An adopted value applies until an operator changes the same
parameter in the settings file. During the trial after an adoption, the results are compared with the interval that the
back-test predicted, and with the time before. If the settings name namespaces for the trial, it has a first stage: only
these namespaces use the values, and are compared with all other namespaces in the same hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bundlekeel.leader.state.adopted_thresholds import KEPT, TRIAL, Adopted, Bucket, FirstStage, Realised, Reverted
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.text_format import level
from bundlekeel.planning.trial import TrialParameters
from bundlekeel.recalibration.rules.thresholds import EQUAL, RANGES, Number, Thresholds, whole

# Share of the trial that must be recorded before the adoption can be reverted.
EARLY: Final = 0.25
# Moves are rare and come in bursts. An excess of this many standard deviations (of a Poisson count) is tolerated.
MARGIN: Final = 2.0
BUCKET_MS: Final = 600_000
# Number of ten-minute buckets to keep: enough for a day before an adoption, a day of its first stage, a day of trial,
# and the time between. Their age is not limited, because only time with cycles has buckets: six hours of trial can take
# a week.
KEPT_BUCKETS: Final = 450
# A longer gap between two cycles does not count as recorded time, unless the cycle interval is that long.
GAP_MS: Final = 300_000
# If other namespaces moved as often, no move in the namespaces on trial is not chance (5 % for a Poisson count).
TELLING_MOVES: Final = 3.0
# At most one automatic adoption a night.
NIGHT_MS: Final = 20 * 3_600_000
# Reverted values are not adopted again for this long, even if another document proposes them. After an operator's
# revert the leader adopts nothing automatically for this long.
REVERTED_MS: Final = 30 * 24 * 3_600_000
KEPT_REVERTS: Final = 50
# Highest number of replaced adoptions whose trial was not over. A revert restarts the trial of the last one.
KEPT_UNJUDGED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStretch:
    """Results of a period: recorded seconds, time mean of (highest score / mean score - 1), and number of moves.

    For some namespaces, `imbalance` is the mean score of their brokers, weighted by their traffic, divided by the mean
    score, minus 1. `share`: their share of the traffic; 1: the whole cluster. The moves of all other namespaces are
    scaled to the same traffic.
    """

    seconds: float = 0.0
    imbalance: float = 0.0
    moves: float = 0
    share: float = 1.0

    @property
    def moves_per_hour(self) -> float:
        """Moves per hour; 0 if no time was recorded."""
        return self.moves * 3600 / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionVerdict:
    """Result of a trial of adopted thresholds, with one sentence for operators."""

    worse: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCycle:
    """Results of one cycle in the first stage of the adoption at `since_ms`.

    `share`: the namespaces' share of the traffic. `imbalance`, `other_imbalance`: as in `TimeStretch`, of these and of
    all other namespaces. `moves`: moves in these namespaces.
    """

    since_ms: int
    share: float
    imbalance: float
    other_imbalance: float
    moves: int


def adopted_values(base: Parameters, adopted: Adopted | None) -> dict[str, Number]:
    """Return the adopted thresholds that override the settings `base` in all namespaces, by parameter.

    Empty if `base` selects another strategy than the adoption.
    """
    if adopted is None:
        return {}
    return _overriding(base, adopted, adopted.before if adopted.namespaces else adopted.values)


def trial_values(base: Parameters, adopted: Adopted | None) -> TrialParameters | None:
    """Return the adopted thresholds that only some namespaces use; None: no first stage, or no value is in effect."""
    if adopted is None or not adopted.namespaces:
        return None
    values = _overriding(base, adopted, adopted.values)
    return TrialParameters(namespaces=adopted.namespaces, values=values) if values else None


def _overriding(base: Parameters, adopted: Adopted, candidates: Mapping[str, float]) -> dict[str, Number]:
    values: dict[str, Number] = {}
    if adopted.strategy != base.strategy:
        return values
    for name, value in candidates.items():
        limits = RANGES.get(name)
        # A newer release may have adopted parameters or values that this release does not allow. Skip them.
        if limits is None or name not in adopted.instead_of or not limits.minimum <= value <= limits.maximum:
            continue
        if math.isclose(float(getattr(base, name)), adopted.instead_of[name], rel_tol=1e-9, abs_tol=1e-9):
            values[name] = int(value) if whole(name) else float(value)
    return values


def in_force(base: Parameters, adopted: Adopted | None) -> Parameters:
    """Return the settings' parameters `base`, overridden by the adopted thresholds."""
    overrides: dict[str, Any] = dict(adopted_values(base, adopted))
    return replace(base, **overrides) if overrides else base


def adoption(
    document: Thresholds,
    digest: str,
    *,
    base: Parameters,
    now: Adopted | None,
    by: str,
    reason: str,
    now_ms: int,
    trial_seconds: float,
) -> Adopted:
    """Return the adoption of the proposal `document`.

    `now`: the present adoption. Thresholds that only `now` contains keep their values, if these still override `base`.
    An adoption in its first stage is dropped, because most namespaces never used it.
    """
    if now is not None and now.namespaces:
        now = one_back(now, by=by, reason=reason, now_ms=now_ms)
    earlier: Mapping[str, float] = adopted_values(base, now)
    values = {**earlier, **document.values}
    unjudged: tuple[Adopted, ...] = ()
    if now is not None and earlier and now.state == TRIAL:
        unjudged = (*now.unjudged, replace(now, unjudged=()))
    return Adopted(
        digest=digest,
        strategy=document.strategy,
        values=values,
        instead_of={name: getattr(base, name) for name in values},
        before=earlier,
        before_digest=now.digest if now is not None and earlier else "",
        by=by,
        reason=reason,
        since_ms=now_ms,
        imbalance_high=document.evidence.chosen.imbalance.high,
        moves_high=document.evidence.chosen.moves_per_hour.high,
        state=TRIAL if trial_seconds > 0 else KEPT,
        trial_seconds=trial_seconds,
        unjudged=unjudged[-KEPT_UNJUDGED:],
    )


def widened(adopted: Adopted, *, by: str, reason: str, now_ms: int) -> Adopted:
    """Return the adoption for all namespaces, with a new trial, after the first stage of `adopted`."""
    # Compare with the time before the first stage, in which no namespace used the values.
    return replace(adopted, namespaces=(), by=by, reason=reason, since_ms=now_ms, compared_ms=adopted.since_ms)


def one_back(adopted: Adopted, *, by: str, reason: str, now_ms: int) -> Adopted | None:
    """Return the adoption in effect after a revert of `adopted`; None: only the settings apply.

    If `adopted` replaced an adoption on trial, that trial starts again.
    """
    if not adopted.before:
        return None
    back = Adopted(
        digest=adopted.before_digest,
        strategy=adopted.strategy,
        values=adopted.before,
        instead_of={name: adopted.instead_of[name] for name in adopted.before if name in adopted.instead_of},
        by=by,
        reason=f"{adopted.digest} was reverted: {reason}",
        since_ms=now_ms,
    )
    if not adopted.unjudged:
        return back
    *earlier, last = adopted.unjudged
    return replace(
        back,
        before=last.before,
        before_digest=last.before_digest,
        imbalance_high=last.imbalance_high,
        moves_high=last.moves_high,
        state=TRIAL,
        trial_seconds=last.trial_seconds,
        unjudged=tuple(earlier),
        # Compare with the time before both adoptions, as the reverted one is not a valid reference.
        compared_ms=last.compared_ms or last.since_ms,
    )


def taken_back(
    reverts: Mapping[str, Reverted], adopted: Adopted, *, by: str, reason: str, now_ms: int
) -> dict[str, Reverted]:
    """Return the last `KEPT_REVERTS` reverts, with the revert of `adopted` added."""
    entry = Reverted(values=dict(adopted.values), by=by, reason=reason, since_ms=now_ms)
    every = {**reverts, adopted.digest: entry}
    newest = sorted(every, key=lambda digest: every[digest].since_ms)[-KEPT_REVERTS:]
    return {digest: every[digest] for digest in newest}


def reverted_before(
    reverts: Mapping[str, Reverted], digest: str, values: Mapping[str, float], now_ms: int
) -> Reverted | None:
    """Return the revert of the proposal with this digest, or of the same values within `REVERTED_MS`; None: no such
    revert."""
    if digest in reverts:
        return reverts[digest]
    for entry in reverts.values():
        shared = [name for name in values if name in entry.values]
        same = len(shared) == len(values) and all(math.isclose(entry.values[name], values[name]) for name in shared)
        if same and now_ms - entry.since_ms < REVERTED_MS:
            return entry
    return None


def resting(adopted: Adopted | None, reverts: Mapping[str, Reverted], person_reverted_ms: int, now_ms: int) -> str:
    """Return why nothing is adopted automatically yet; "": nothing prevents it.

    `person_reverted_ms`: time of the last revert by an operator, Unix ms; 0: no operator has reverted, or an operator
    has adopted since.
    """
    if person_reverted_ms and now_ms - person_reverted_ms < REVERTED_MS:
        days = (now_ms - person_reverted_ms) / 86_400_000
        left = REVERTED_MS / 86_400_000 - days
        return f"a person reverted {days:.1f} days ago; until a person adopts, at most {left:.1f} days more"
    last = max([adopted.since_ms if adopted else 0, *(entry.since_ms for entry in reverts.values())])
    if now_ms - last < NIGHT_MS:
        hours = (now_ms - last) / 3_600_000
        return f"the last adoption or revert was {hours:.1f} h ago; one in {NIGHT_MS / 3_600_000:g} h"
    return ""


def noted(
    realised: Realised,
    now_ms: int,
    imbalance: float,
    moves: int,
    interval_seconds: float = 0.0,
    stage: StageCycle | None = None,
) -> Realised:
    """Return `realised` (recorded results by ten minutes) with one more cycle.

    The cycle's imbalance counts for the time since the last cycle. `interval_seconds`: configured seconds between two
    cycles. `stage`: results in the namespaces of a first stage; None: there is no such stage.
    """
    gap = now_ms - realised.last_ms
    seconds = gap / 1000 if 0 < gap <= max(GAP_MS, 2000 * interval_seconds) else 0.0
    at = now_ms - now_ms % BUCKET_MS
    buckets = realised.buckets
    last = buckets[-1] if buckets and buckets[-1].at_ms == at else Bucket(at_ms=at)
    before = buckets[:-1] if buckets and buckets[-1].at_ms == at else buckets
    grown = Bucket(
        at_ms=at, seconds=last.seconds + seconds, weighted=last.weighted + imbalance * seconds, moves=last.moves + moves
    )
    earlier = tuple(bucket for bucket in before if bucket.at_ms < at)
    first_stage = realised.first_stage if stage is None else _added(realised.first_stage, stage, seconds, moves)
    return Realised(buckets=(*earlier, grown)[-KEPT_BUCKETS:], last_ms=now_ms, first_stage=first_stage)


def _added(sums: FirstStage, cycle: StageCycle, seconds: float, moves: int) -> FirstStage:
    if sums.since_ms != cycle.since_ms:
        sums = FirstStage(since_ms=cycle.since_ms)
    return replace(
        sums,
        seconds=sums.seconds + seconds,
        share=sums.share + cycle.share * seconds,
        weighted=sums.weighted + cycle.imbalance * seconds,
        other_weighted=sums.other_weighted + cycle.other_imbalance * seconds,
        moves=sums.moves + cycle.moves,
        other_moves=sums.other_moves + moves - cycle.moves,
    )


def stretch(realised: Realised, from_ms: int, until_ms: int) -> TimeStretch:
    """Sum the results in the ten-minute buckets that begin between the two times (Unix ms)."""
    buckets = [bucket for bucket in realised.buckets if from_ms <= bucket.at_ms < until_ms]
    seconds = math.fsum(bucket.seconds for bucket in buckets)
    weighted = math.fsum(bucket.weighted for bucket in buckets)
    return TimeStretch(
        seconds=seconds,
        imbalance=weighted / seconds if seconds > 0 else 0.0,
        moves=sum(bucket.moves for bucket in buckets),
    )


def before_and_after(realised: Realised, adopted: Adopted, now_ms: int) -> tuple[TimeStretch, TimeStretch]:
    """Return the results before the adoption (as long as the trial), and those since the adoption.

    In the first stage: the results since the adoption of all other namespaces, and of the namespaces that use it.
    """
    if adopted.namespaces:
        return _stage(realised.first_stage, adopted)
    end = adopted.compared_ms or adopted.since_ms
    start = end - int(1000 * adopted.trial_seconds)
    # The bucket that contains the time of the adoption is not used, because it mixes both periods.
    border = end - end % BUCKET_MS
    return stretch(realised, start, border), stretch(realised, adopted.since_ms, now_ms + 1)


def _stage(sums: FirstStage, adopted: Adopted) -> tuple[TimeStretch, TimeStretch]:
    if sums.since_ms != adopted.since_ms or sums.seconds <= 0:
        return TimeStretch(), TimeStretch(share=0.0)
    seconds, share = sums.seconds, sums.share / sums.seconds
    after = TimeStretch(seconds=seconds, imbalance=sums.weighted / seconds, moves=sums.moves, share=share)
    if share >= 1:
        return TimeStretch(), after
    moves = sums.other_moves * share / (1 - share)
    return replace(after, imbalance=sums.other_weighted / seconds, moves=moves), after


def unjudged(adopted: Adopted, before: TimeStretch, after: TimeStretch) -> str:
    """Return why a first stage of full length has no verdict; "": it has one, or is not over."""
    if not adopted.namespaces or after.seconds < adopted.trial_seconds or after.moves or before.moves >= TELLING_MOVES:
        return ""
    reason = "no bundle of these namespaces has moved" if after.share else "these namespaces have no traffic"
    return f"{reason}, so the values cannot be judged there"


def judged(adopted: Adopted, before: TimeStretch, after: TimeStretch) -> AdoptionVerdict | None:
    """Return the verdict of a trial; None: too early, or a first stage without moves.

    An adoption is worse if its results are worse than predicted and, if enough time was recorded before the adoption,
    also worse than in that time; in the first stage, worse than in all other namespaces.
    """
    needed = adopted.trial_seconds
    if after.seconds < EARLY * needed or after.seconds <= 0:
        return None
    comparable = before.seconds >= EARLY * needed
    faults = [*_imbalance(adopted, before, after, comparable), *_moves(adopted, before, after, comparable)]
    if faults:
        return AdoptionVerdict(worse=True, sentence=f"worse than the evidence predicted: {'; '.join(faults)}")
    if after.seconds < needed or unjudged(adopted, before, after):
        return None
    text = f"{_measure(adopted)} {level(after.imbalance)}, {after.moves_per_hour:.1f} moves an hour"
    return AdoptionVerdict(worse=False, sentence=f"as the evidence predicted: {text}")


def _imbalance(adopted: Adopted, before: TimeStretch, after: TimeStretch, comparable: bool) -> Iterable[str]:
    if after.imbalance <= adopted.imbalance_high or (comparable and after.imbalance <= (1 + EQUAL) * before.imbalance):
        return
    was = f", {_reference(adopted)}: {level(before.imbalance)}" if comparable else ""
    yield f"{_measure(adopted)} {level(after.imbalance)}, predicted at most {level(adopted.imbalance_high)}{was}"


def _moves(adopted: Adopted, before: TimeStretch, after: TimeStretch, comparable: bool) -> Iterable[str]:
    promised_per_hour = adopted.moves_high * after.share
    promised = promised_per_hour * after.seconds / 3600
    if after.moves <= promised + MARGIN * math.sqrt(max(1.0, promised)) or (
        comparable and after.moves_per_hour <= before.moves_per_hour
    ):
        return
    was = f", {_reference(adopted)}: {before.moves_per_hour:.1f}" if comparable else ""
    yield f"{after.moves_per_hour:.1f} moves an hour, predicted at most {promised_per_hour:.1f}{was}"


def _measure(adopted: Adopted) -> str:
    return "load of their brokers/mean" if adopted.namespaces else "max/mean"


def _reference(adopted: Adopted) -> str:
    return "other namespaces" if adopted.namespaces else "before"
