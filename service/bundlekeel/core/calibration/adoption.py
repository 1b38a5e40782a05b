"""Calibrated thresholds in force: what they replace, whether they do what was predicted, and the way back. Pure.

An adoption overrides the settings, parameter by parameter. An entry counts while the setting below it is unchanged: a
later change of the settings file takes precedence. After an adoption the cluster is watched: what is realised is
compared with the interval that the evidence gave, and with the time before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bundlekeel.core.calibration.thresholds import EQUAL, RANGES, Number, Thresholds, whole
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.text_format import level

TRIAL, KEPT = "trial", "kept"
# Beside the command that adopts, and in the answer to it.
WAY_BACK: Final = (
    "Once adopted, it is on trial for `calibration.trial` (six hours of balancing by default; 0: no trial), and "
    "reverted automatically if balance or moves are worse than the evidence promised. To revert it yourself: "
    '`bundlekeel thresholds revert --reason "..."`'
)
# Of the time an adoption is watched, so much must have been seen before anything is said about it.
EARLY: Final = 0.25
# Moves are few and come in bursts: so many standard deviations of a Poisson count are noise.
MARGIN: Final = 2.0
BUCKET_MS: Final = 600_000
# As much as is ever compared: a day before an adoption, a day of trial, and what lies between. Counted, as time without
# cycles of ours leaves none: a trial of six hours may take a week of maintenance windows.
KEPT_BUCKETS: Final = 300
# Longer gaps between two cycles of ours say nothing about the time between, unless cycles are that long themselves.
GAP_MS: Final = 300_000
# At most one automatic adoption a night.
NIGHT_MS: Final = 20 * 3_600_000
# What was reverted is not tried again for so long, also when another document proposes it. After a person's revert the
# leader tries nothing for so long.
REVERTED_MS: Final = 30 * 24 * 3_600_000
KEPT_REVERTS: Final = 50
# Adoptions in a row, each made by a person while the one before was on trial.
KEPT_UNJUDGED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """Thresholds that came into force. `values`: by parameter, those of earlier nights included; `instead_of`: what the
    settings said then. `before`, `before_digest`: the entries before it, which a revert brings back; `digest` "": only
    those are left. `imbalance_high`, `moves_high`: upper ends of what the evidence promised (ratio, moves an hour).
    `state`: trial (watched for `trial_seconds` of acting) or kept. `unjudged`: adoptions that were on trial when others
    took their place, oldest first; a revert brings the last one back. `compared_ms`: until when the time before is
    measured, 0: until `since_ms`."""

    digest: str
    strategy: str
    values: Mapping[str, float]
    instead_of: Mapping[str, float]
    before: Mapping[str, float] = field(default_factory=dict)
    before_digest: str = ""
    by: str = ""
    reason: str = ""
    since_ms: int = 0
    imbalance_high: float = 0.0
    moves_high: float = 0.0
    state: str = KEPT
    trial_seconds: float = 0.0
    unjudged: tuple[Adopted, ...] = ()
    compared_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverted:
    """Thresholds that were taken back: their values, by whom, why and when."""

    values: Mapping[str, float]
    by: str
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Ten minutes as they were: seconds seen while acting, imbalance times seconds, moves of the strategy."""

    at_ms: int
    seconds: float = 0.0
    weighted: float = 0.0
    moves: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Realised:
    """The last two days of our own cycles, for the next leader too. `last_ms`: the cycle noted last."""

    buckets: tuple[Bucket, ...] = ()
    last_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStretch:
    """A stretch of time, summed up: seconds seen, time mean of (largest score / mean score - 1), moves."""

    seconds: float = 0.0
    imbalance: float = 0.0
    moves: int = 0

    @property
    def moves_per_hour(self) -> float:
        """0 when nothing was seen."""
        return self.moves * 3600 / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionVerdict:
    """What came of an adoption, in a sentence."""

    worse: bool
    sentence: str


def adopted_values(base: Parameters, adopted: Adopted | None) -> dict[str, Number]:
    """The values that lie over these settings, by parameter. None while another strategy is in force."""
    if adopted is None or adopted.strategy != base.strategy:
        return {}
    found: dict[str, Number] = {}
    for name, value in adopted.values.items():
        limits = RANGES.get(name)
        # What a newer release adopted and this one does not know, or would not allow, stays out.
        if limits is None or name not in adopted.instead_of or not limits.minimum <= value <= limits.maximum:
            continue
        if math.isclose(float(getattr(base, name)), adopted.instead_of[name], rel_tol=1e-9, abs_tol=1e-9):
            found[name] = int(value) if whole(name) else float(value)
    return found


def in_force(base: Parameters, adopted: Adopted | None) -> Parameters:
    """The settings with what was adopted over them."""
    laid: dict[str, Any] = dict(adopted_values(base, adopted))
    return replace(base, **laid) if laid else base


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
    """`document` put over the settings `base`, and over what `now` still has in force of earlier nights."""
    kept: Mapping[str, float] = adopted_values(base, now)
    values = {**kept, **document.values}
    unjudged: tuple[Adopted, ...] = ()
    if now is not None and kept and now.state == TRIAL:
        unjudged = (*now.unjudged, replace(now, unjudged=()))
    return Adopted(
        digest=digest,
        strategy=document.strategy,
        values=values,
        instead_of={name: getattr(base, name) for name in values},
        before=kept,
        before_digest=now.digest if now is not None and kept else "",
        by=by,
        reason=reason,
        since_ms=now_ms,
        imbalance_high=document.evidence.chosen.imbalance.high,
        moves_high=document.evidence.chosen.moves_per_hour.high,
        state=TRIAL if trial_seconds > 0 else KEPT,
        trial_seconds=trial_seconds,
        unjudged=unjudged[-KEPT_UNJUDGED:],
    )


def one_back(adopted: Adopted, *, by: str, reason: str, now_ms: int) -> Adopted | None:
    """What is in force once this adoption is taken back: the entries before it, None: the settings alone. An entry that
    was on trial when this one took its place is on trial again, from the beginning."""
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
        # The adoption that is taken back now is no measure of how things were without either.
        compared_ms=last.compared_ms or last.since_ms,
    )


def taken_back(
    known: Mapping[str, Reverted], adopted: Adopted, *, by: str, reason: str, now_ms: int
) -> dict[str, Reverted]:
    """What was reverted so far, with this adoption; the oldest are forgotten."""
    entry = Reverted(values=dict(adopted.values), by=by, reason=reason, since_ms=now_ms)
    every = {**known, adopted.digest: entry}
    newest = sorted(every, key=lambda digest: every[digest].since_ms)[-KEPT_REVERTS:]
    return {digest: every[digest] for digest in newest}


def reverted_before(
    known: Mapping[str, Reverted], digest: str, values: Mapping[str, float], now_ms: int
) -> Reverted | None:
    """The revert of this document, or, within `REVERTED_MS`, of one with the same values."""
    if digest in known:
        return known[digest]
    for entry in known.values():
        shared = [name for name in values if name in entry.values]
        same = len(shared) == len(values) and all(math.isclose(entry.values[name], values[name]) for name in shared)
        if same and now_ms - entry.since_ms < REVERTED_MS:
            return entry
    return None


def resting(adopted: Adopted | None, known: Mapping[str, Reverted], person_reverted_ms: int, now_ms: int) -> str:
    """Why nothing is adopted automatically yet, in words; empty: nothing is in the way. `person_reverted_ms`: when a
    person reverted, 0: none did since a person adopted."""
    if person_reverted_ms and now_ms - person_reverted_ms < REVERTED_MS:
        days = (now_ms - person_reverted_ms) / 86_400_000
        left = REVERTED_MS / 86_400_000 - days
        return f"a person reverted {days:.1f} days ago; until a person adopts, at most {left:.1f} days more"
    last = max([adopted.since_ms if adopted else 0, *(entry.since_ms for entry in known.values())])
    if now_ms - last < NIGHT_MS:
        hours = (now_ms - last) / 3_600_000
        return f"the last adoption or revert was {hours:.1f} h ago; one in {NIGHT_MS / 3_600_000:g} h"
    return ""


def noted(realised: Realised, now_ms: int, imbalance: float, moves: int, interval_seconds: float = 0.0) -> Realised:
    """With one more cycle: its imbalance stands for the time since the cycle before. `interval_seconds`: between two
    cycles, as set."""
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
    return Realised(buckets=(*earlier, grown)[-KEPT_BUCKETS:], last_ms=now_ms)


def stretch(realised: Realised, from_ms: int, until_ms: int) -> TimeStretch:
    """The ten-minute buckets that begin within this time."""
    found = [bucket for bucket in realised.buckets if from_ms <= bucket.at_ms < until_ms]
    seconds = math.fsum(bucket.seconds for bucket in found)
    weighted = math.fsum(bucket.weighted for bucket in found)
    return TimeStretch(
        seconds=seconds,
        imbalance=weighted / seconds if seconds > 0 else 0.0,
        moves=sum(bucket.moves for bucket in found),
    )


def before_and_after(realised: Realised, adopted: Adopted, now_ms: int) -> tuple[TimeStretch, TimeStretch]:
    """As long before the adoption as it is watched, and since."""
    end = adopted.compared_ms or adopted.since_ms
    start = end - int(1000 * adopted.trial_seconds)
    # Its own ten minutes hold both sides, so they belong to neither.
    border = end - end % BUCKET_MS
    return stretch(realised, start, border), stretch(realised, adopted.since_ms, now_ms + 1)


def judged(adopted: Adopted, before: TimeStretch, after: TimeStretch) -> AdoptionVerdict | None:
    """Whether the adoption made things worse than promised, and than before; None: not known yet."""
    needed = adopted.trial_seconds
    if after.seconds < EARLY * needed or after.seconds <= 0:
        return None
    comparable = before.seconds >= EARLY * needed
    found = [*_imbalance(adopted, before, after, comparable), *_moves(adopted, before, after, comparable)]
    if found:
        return AdoptionVerdict(worse=True, sentence=f"worse than the evidence predicted: {'; '.join(found)}")
    if after.seconds < needed:
        return None
    text = f"max/mean {level(after.imbalance)}, {after.moves_per_hour:.1f} moves an hour"
    return AdoptionVerdict(worse=False, sentence=f"as the evidence predicted: {text}")


def _imbalance(adopted: Adopted, before: TimeStretch, after: TimeStretch, comparable: bool) -> Iterable[str]:
    if after.imbalance <= adopted.imbalance_high or (comparable and after.imbalance <= (1 + EQUAL) * before.imbalance):
        return
    was = f", before: {level(before.imbalance)}" if comparable else ""
    yield f"max/mean {level(after.imbalance)}, predicted at most {level(adopted.imbalance_high)}{was}"


def _moves(adopted: Adopted, before: TimeStretch, after: TimeStretch, comparable: bool) -> Iterable[str]:
    promised = adopted.moves_high * after.seconds / 3600
    if after.moves <= promised + MARGIN * math.sqrt(max(1.0, promised)) or (
        comparable and after.moves_per_hour <= before.moves_per_hour
    ):
        return
    was = f", before: {before.moves_per_hour:.1f}" if comparable else ""
    yield f"{after.moves_per_hour:.1f} moves an hour, predicted at most {adopted.moves_high:.1f}{was}"
