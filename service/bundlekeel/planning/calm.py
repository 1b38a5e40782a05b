"""The decision rule: act when an imbalance has cost more than the moves that would end it.

An *excess* is a period in which a broker's load differs from the others by more than the strategy tolerates. Each
second of it costs the square of the excess: 1 if the difference is twice the tolerated one, 4 if it is three times. A
plan is made when this cost, since the excess began, exceeds the price of the moves. An excess that ended without moves,
or that turned into the opposite excess after moves, is a *swing*. A new excess of that size must first last longer than
the swing did, unless a swing costs so much that moves for each swing are worth their price. This is the ski-rental
problem with a prediction.

The cost grows with the measured time, not with the number of cycles or readings, so load reports and counters lead to
the same decisions. Sources: PIP-364 (jitter must cause no moves); docs/concepts/decision-rule.md explains the rule to
operators.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import median_low
from types import MappingProxyType
from typing import Final

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.snapshot import Bools
from bundlekeel.planning.memory import BrokerCourse, Excess, Swing

# Any plan costs as much as this many moves in addition to its own: clients and operators notice it.
PLAN_MOVES: Final = 2
# A change of more than this many standard deviations of the noise is a change of the load.
CHANGE_DEVIATIONS: Final = 4.0
# A change of traffic by `TRAFFIC_FACTOR` is also a change of the load, if it is at least `TRAFFIC_SHARE` of the mean
# traffic of a broker. Traffic is exact within seconds; the CPU use of a small broker is not. The level then changes by
# the CPU cost of that traffic, and counts as a mean of `SHIFTED_SECONDS`, so that new readings correct it soon.
TRAFFIC_FACTOR: Final = 1.5
TRAFFIC_SHARE: Final = 0.1
SHIFTED_SECONDS: Final = 10.0
# A broker's level is the mean of at most this many seconds, so that it follows a slow drift.
LEVEL_SECONDS: Final = 300.0
# The noise of a broker is computed from its last `NOISE_READINGS`. Readings shorter than `NOISE_SECONDS` are combined,
# because noise that lasts for some seconds does not show between readings of 2 s.
NOISE_READINGS: Final = 16
NOISE_SECONDS: Final = 10.0
# From fewer changes between readings, the noise cannot be estimated.
LEAST_CHANGES: Final = 3
# An entry in the readings of a broker that marks a move of its bundles.
MOVED: Final = (0.0, 0.0)
# An excess counts only as far as it exceeds this many standard deviations of the noise.
DOUBT_DEVIATIONS: Final = 2.0
# Each second with a tolerated difference shortens an excess by `TAKEN_BACK` seconds. After `OVER_SECONDS` of tolerated
# time, the excess has ended in any case.
TAKEN_BACK: Final = 2.0
OVER_SECONDS: Final = 120.0
# An excess must last longer than a swing by this factor, because swings differ in length.
SWING_PATIENCE: Final = 1.5
# Moves during a swing end its excess early, and start the excess of the other side early. The swing is longer than its
# excess by this factor.
TURNED_LONGER: Final = 1.6
# An excess on the other side within this time after moves, without a change of the load, is not a swing: the plan
# moved too much.
SETTLING_SECONDS: Final = 10.0
# An excess that costs more per second than a swing by this factor is not such a swing. A swing that comes back after
# moves differs by twice as much: an excess of 1 becomes one of 3, which costs 9 times as much. A reading that covers
# only a part of the swing shows less of it, so four times the excess is still like it.
SWING_LIKENESS: Final = 16.0
# An excess that lasted longer than `LONGEST_SWING_SECONDS` was not a swing. A swing that has not returned for
# `SWING_MEMORY_SECONDS` is dropped.
LONGEST_SWING_SECONDS: Final = 900.0
SWING_MEMORY_SECONDS: Final = 7200.0
# A load that has not changed for `STEADY_SECONDS` is steady. If the CPU use then falls below `FALLEN_SHARE` of the use
# that the traffic explains, other processes may have taken the CPU. A load report shows that within the same time.
# Until then, the broker does not count as cold.
STEADY_SECONDS: Final = 120.0
FALLEN_SHARE: Final = 0.8
# Loads show a split or merge of segments up to a statistics interval later.
SHOWN_MS: Final = 60_000
# A single reading can be wrong, so a second one must confirm an excess.
CONFIRMING_READINGS: Final = 2


Readings = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of the brokers in this cycle, one row per broker.

    `scores`: reported score. `traffic`: bytes/s, in and out, measured at the same time as the score; -1: unknown.
    `cost`: estimated score per byte/s. `updated_ms`: time of the report or counters; if it is unchanged, the broker has
    not reported, so its load has not changed. `until_ms`: end of the time for which the score is valid, Unix ms.
    `seconds`: maximum length of the time over which the score is a mean.
    """

    ids: Sequence[str]
    scores: Floats
    traffic: Floats
    cost: Floats
    updated_ms: Ints
    until_ms: Ints
    seconds: Floats


def follow_levels(
    earlier: Mapping[str, BrokerCourse],
    brokers: Measured,
    moving: Collection[str],
    segments_changed: Mapping[str, int] = MappingProxyType({}),
) -> tuple[dict[str, BrokerCourse], Floats]:
    """Return each broker's load history with the new measurements, and the newly measured seconds, shape (n,).

    `earlier`: load histories before this cycle. `moving`: brokers whose reports do not show their moves yet; their mean
    score restarts with the first report that shows them. `segments_changed`: last split or merge by broker, Unix ms.
    """
    courses, seconds = dict[str, BrokerCourse](), np.zeros(len(brokers.ids))
    least = TRAFFIC_SHARE * float(brokers.traffic.mean()) if len(brokers.ids) else 0.0
    for row, (broker, score, traffic, until) in enumerate(
        zip(brokers.ids, brokers.scores.tolist(), brokers.traffic.tolist(), brokers.until_ms.tolist(), strict=True)
    ):
        course, updated, most = earlier.get(broker), int(brokers.updated_ms[row]), float(brokers.seconds[row])
        if course is None:
            # It is unknown for how long a first report was valid. It counts as a reading, and has no cost.
            seconds[row] = known_for = most if most < math.inf else 0.001
            courses[broker] = BrokerCourse(
                level=score,
                traffic=traffic,
                updated_ms=updated,
                until_ms=until,
                seconds=known_for,
                readings=((score, known_for),),
            )
            continue
        seconds[row] = passed = min(max(0.0, (until - course.until_ms) / 1000), most)
        means, readings = (course.level, course.traffic, course.seconds), course.readings
        if broker in moving:
            means = score, traffic, 0.0
        elif passed > 0 and updated == course.updated_ms and course.seconds > 0:
            means = course.level, course.traffic, min(course.seconds + passed, LEVEL_SECONDS)
        elif passed > 0:
            means, readings = _advance_level(course, score, traffic, passed, least, float(brokers.cost[row]))
        known_until, is_steady = max(until, course.until_ms), means[2] >= STEADY_SECONDS
        courses[broker] = replace(
            course,
            level=means[0],
            traffic=means[1],
            seconds=means[2],
            readings=readings,
            updated_ms=updated if passed > 0 else course.updated_ms,
            until_ms=known_until,
            steady=means[:2] if is_steady else course.steady,
            steady_ms=known_until if is_steady else course.steady_ms,
            segments_ms=segments_changed.get(broker, course.segments_ms),
        )
    return courses, seconds


def _advance_level(
    course: BrokerCourse, score: float, traffic: float, seconds: float, least: float, cost: float
) -> tuple[tuple[float, float, float], Readings]:
    """Add one reading to the broker's mean score and mean traffic, or restart the means if its load has changed.

    Returns the mean score, the mean traffic, their seconds, and the readings. The load has changed if the reading
    differs from the means by more than noise. `least`: smallest relevant change of
    traffic, bytes/s. `cost`: score per byte/s of traffic.
    """
    level, mean_traffic, mean_seconds = course.level, course.traffic, course.seconds
    low, high = sorted((traffic, mean_traffic))
    # A change by moves is not noise. It is unknown which load report shows the moves.
    before = (*course.readings, MOVED) if mean_seconds <= 0 <= traffic else course.readings
    readings = _with_reading(before, score, seconds)
    anew = score, traffic, seconds
    if mean_seconds <= 0:
        return anew, readings
    if low < 0:
        mean_traffic = traffic
    elif high > max(TRAFFIC_FACTOR * low, low + least):
        level, mean_traffic = level + cost * (traffic - mean_traffic), traffic
        mean_seconds = min(mean_seconds, SHIFTED_SECONDS)
    # The variance of a mean decreases with its length. This is the squared change, converted to means of one second.
    change = (score - level) ** 2 / (1 / seconds + 1 / mean_seconds)
    if change > CHANGE_DEVIATIONS**2 * noise_of(course):
        return anew, readings
    total = mean_seconds + seconds
    level += (score - level) * seconds / total
    mean_traffic += (traffic - mean_traffic) * seconds / total
    return (level, mean_traffic, min(total, LEVEL_SECONDS)), readings


def _with_reading(readings: Readings, score: float, seconds: float) -> Readings:
    mean, lasted = readings[-1] if readings else MOVED
    if not 0 < lasted < NOISE_SECONDS:
        return (*readings, (score, seconds))[-NOISE_READINGS:]
    total = lasted + seconds
    return (*readings[:-1], (mean + (score - mean) * seconds / total, total))


def noise_of(course: BrokerCourse, *, late: bool = False) -> float:
    """Return the variance that noise causes in a broker's score, for a mean over one second; 0: unknown.

    `late`: use only the later half of the broker's readings.
    """
    return _noise_in(course.readings, late)


@lru_cache(maxsize=4096)
def _noise_in(readings: Readings, late: bool) -> float:
    changes = [
        (score - before) / math.sqrt(1 / seconds + 1 / lasted)
        for (before, lasted), (score, seconds) in pairwise(readings)
        if seconds >= NOISE_SECONDS and lasted > 0
    ]
    if late:
        changes = changes[-max(LEAST_CHANGES, len(changes) // 2) :]
    if len(changes) < LEAST_CHANGES:
        return 0.0
    # A load that rises or falls has equal changes, and a step is one change, but both its differences are large: the
    # lower of two estimates is noise. A normal deviation has a median square of 0.455; changes that follow each other
    # share a reading, so their difference has three times its variance.
    between = median_low([(now - before) ** 2 for before, now in pairwise(changes)]) / 3
    return min(median_low([change**2 for change in changes]), between) / 0.455


def has_fallen(course: BrokerCourse) -> bool:
    """Return whether the CPU use of a broker has recently fallen although its traffic (by counters) has not."""
    level, traffic = course.steady
    explained = level * min(1.0, course.traffic / traffic) if traffic > 0 else 0.0
    return course.until_ms - course.steady_ms < 1000 * STEADY_SECONDS and course.level < FALLEN_SHARE * explained


def differences(scores: Floats, mean: float) -> Floats:
    """Return how far each broker is from its counterpart on the other side of the mean score, shape (n,).

    The counterpart is as far from the mean as the broker itself, but at most as far as the farthest broker on that
    side. So a single extreme broker differs by about its own distance, and the many brokers on the other side differ by
    little.
    """
    distance = scores - mean
    hottest, coldest = max(float(distance.max(initial=0.0)), 0.0), max(float(-distance.min(initial=0.0)), 0.0)
    other = np.where(distance >= 0, coldest, hottest)
    differ: Floats = np.abs(distance) + np.minimum(np.abs(distance), other)
    return differ


def doubts(courses: Mapping[str, BrokerCourse], ids: Sequence[str]) -> Floats:
    """Return the part of each broker's difference from the others that may be noise, in score; shape (n,)."""
    variance = np.array([_least_noise(courses[broker]) / max(courses[broker].seconds, 1.0) for broker in ids])
    noise: Floats = DOUBT_DEVIATIONS * np.sqrt(variance + (variance.mean() if len(variance) else 0.0))
    return noise


def _least_noise(course: BrokerCourse) -> float:
    """Return the variance that noise causes in a broker's score (see `noise_of`).

    After a start, the CPU use of a broker varies more, because the JVM still compiles its code. So while there are few
    readings of counters, the later half of them is used alone if it has less noise.
    """
    noise = noise_of(course)
    has_few_counters = course.traffic >= 0 and len(course.readings) < NOISE_READINGS
    return min(noise, noise_of(course, late=True)) if has_few_counters else noise


def follow_excesses(
    courses: Mapping[str, BrokerCourse],
    ids: Sequence[str],
    hot: Bools,
    excess: Floats,
    seconds: Floats,
    moving: Collection[str],
) -> dict[str, BrokerCourse]:
    """Return each broker's load history, with the newly measured time added to the cost of its excess.

    An excess is a period in which a broker's load differs too much from the others.

    Args:
        hot: whether the broker is above the mean, shape (n,).
        excess: difference divided by the tolerated difference, minus 1, shape (n,); below 0: tolerated.
        seconds: newly measured seconds, shape (n,).
        moving: brokers whose moves do not show in reports yet; the cost of their excess does not grow.
    """
    advanced = dict(courses)
    for broker, above, size, passed in zip(ids, hot.tolist(), excess.tolist(), seconds.tolist(), strict=True):
        course = courses[broker]
        if broker in moving:
            if course.excess is not None:
                advanced[broker] = replace(course, excess=replace(course.excess, readings=0))
        elif passed > 0:
            course = _advance_excess(course, "hot" if above else "cold", size, passed)
            advanced[broker] = replace(course, acted_seconds=course.acted_seconds + passed)
    return advanced


def _advance_excess(course: BrokerCourse, side: str, size: float, seconds: float) -> BrokerCourse:
    excess = course.excess
    if size < 0:
        return course if excess is None else _tolerate(course, excess, seconds)
    rate = size**2
    if excess is not None and excess.side == side:
        longer = replace(
            excess,
            seconds=excess.seconds + seconds,
            longest=max(excess.longest, excess.seconds + seconds),
            cost=excess.cost + rate * seconds,
            rate=rate,
            readings=excess.readings + 1,
            tolerated=0.0,
        )
        return replace(course, excess=longer)
    if excess is not None:
        course = _end(course, excess)
    started = Excess(
        side=side,
        since_ms=course.until_ms - int(1000 * seconds),
        seconds=seconds,
        longest=seconds,
        cost=rate * seconds,
        rate=rate,
        readings=1,
    )
    if course.acted is not None and course.acted.side != side:
        course = replace(_turn(course, course.acted, started), acted=None)
    return replace(course, excess=started)


def _turn(course: BrokerCourse, acted: Excess, started: Excess) -> BrokerCourse:
    """Record a swing if a broker that was too loaded has too little load after moves, or vice versa.

    `acted`: period of too large a difference, which caused the moves. `started`: such a period on the other side, after
    them. It is not a swing if `started` began directly after the moves while the load did not change: the plan moved
    too much.
    """
    since = course.acted_seconds
    if course.traffic >= 0 and since < SETTLING_SECONDS and course.seconds >= since + started.seconds:
        return course
    lasted = (started.since_ms - acted.since_ms) / 1000
    if lasted <= LONGEST_SWING_SECONDS:
        lasted = min(TURNED_LONGER * lasted, LONGEST_SWING_SECONDS)
    return _remember(course, replace(acted, longest=lasted), max(acted.mean_rate, started.rate))


def _tolerate(course: BrokerCourse, excess: Excess, seconds: float) -> BrokerCourse:
    tolerated, left = excess.tolerated + seconds, excess.seconds - TAKEN_BACK * seconds
    if left <= 0 or tolerated >= OVER_SECONDS:
        return _end(course, excess)
    if left < excess.longest / 2:
        course = _end(course, excess)
    cost = excess.mean_rate * left
    return replace(course, excess=replace(excess, seconds=left, cost=cost, tolerated=tolerated, rate=0.0, readings=0))


def _end(course: BrokerCourse, excess: Excess) -> BrokerCourse:
    """Remove an excess (period of too large a difference) that has ended from a broker's load history.

    Unless moves ended it, it is recorded as a swing (an excess that ends without moves).
    """
    course = replace(course, excess=None)
    if course.acted is not None and course.acted.since_ms >= excess.since_ms:
        return course
    return _remember(course, excess, excess.mean_rate)


def _remember(course: BrokerCourse, excess: Excess, rate: float) -> BrokerCourse:
    """Record an ended excess as a swing (a period of too large a difference that ends without moves).

    It is combined with the swing recorded before. If their costs per second differ by more than the factor
    `SWING_LIKENESS`, they are different swings, and only the costlier one is kept. `rate`: cost per second of the
    excess.
    """
    # A split or merge of segments changes the load of the broker once, so it is not a swing.
    if excess.longest > LONGEST_SWING_SECONDS or course.segments_ms > max(0, excess.since_ms - SHOWN_MS):
        return course
    lasts, swing = swing_seconds(course), course.swing
    if swing is None or lasts <= 0 or rate > SWING_LIKENESS * swing.rate:
        return replace(course, swing=Swing(seconds=excess.longest, rate=rate, at_ms=course.until_ms))
    if swing.rate > SWING_LIKENESS * rate:
        return course
    rate = max(swing.rate, rate)
    if excess.longest < lasts / 2:
        return replace(course, swing=replace(swing, rate=rate))
    # The same swing has returned. If it is shorter now, the stored length decreases by half of the difference.
    seconds = max(excess.longest, (lasts + excess.longest) / 2)
    return replace(course, swing=Swing(seconds=seconds, rate=rate, at_ms=course.until_ms))


def swing_seconds(course: BrokerCourse) -> float:
    """Return the length of the recorded swing of this broker, in seconds; 0: none, or it is too long ago.

    A swing is a period of too large a difference that ended without moves.
    """
    if course.swing is None:
        return 0.0
    age = (course.until_ms - course.swing.at_ms) / 1000
    return course.swing.seconds if age < SWING_MEMORY_SECONDS else 0.0


def is_confirmed(course: BrokerCourse) -> bool:
    """Return whether enough readings in a row show that this broker's load differs too much from the others."""
    return course.excess is not None and course.excess.readings >= CONFIRMING_READINGS


def held_seconds(course: BrokerCourse, worth: float) -> float:
    """Return how many seconds a broker's load must differ too much from the others before moves; 0: no wait.

    The condition exists because the difference may be a swing, which ends without moves. `worth`: a swing that costs at
    least this is always followed by moves (in the unit of the price of moves).
    """
    excess, swing, lasts = course.excess, course.swing, swing_seconds(course)
    if excess is None or swing is None or excess.mean_rate > SWING_LIKENESS * swing.rate:
        return 0.0
    needed = SWING_PATIENCE * lasts
    return needed if excess.seconds < needed and excess.mean_rate * lasts < worth else 0.0


def acted(
    courses: Mapping[str, BrokerCourse], reasons: Collection[str], sides: Mapping[str, str]
) -> dict[str, BrokerCourse]:
    """Return the load histories after moves, which restart the means of the brokers concerned.

    If such a broker's load then differs too much in the opposite direction, that counts as a swing.

    Args:
        reasons: brokers whose too large difference from the others caused the moves.
        sides: `hot` (above the mean) or `cold`, by broker that gives or takes a bundle.
    """
    after = dict(courses)
    costly = [item.excess for name in reasons if (item := courses[name]).excess is not None]
    most = max(costly, key=lambda item: item.cost, default=None)
    for broker, side in sides.items():
        course = courses[broker]
        reason = most or Excess(side=side, since_ms=course.until_ms)
        since = min((item.since_ms for item in costly), default=course.until_ms)
        waiting = course.excess and replace(course.excess, readings=0)
        if waiting and waiting.side == side:
            since = waiting.since_ms
        ended = replace(reason, side=side, since_ms=since)
        after[broker] = replace(course, seconds=0.0, excess=waiting, acted=ended, acted_seconds=0.0)
    return after


def price_of(moves: int, move_price: float) -> float:
    """Return the price of a plan with this number of moves, in the unit of the cost of an imbalance."""
    return move_price * (PLAN_MOVES + moves)


def fewest_moves(loads: Floats, want: float) -> int:
    """Return how many of the largest bundles carry 80 % of `want`; at least 1.

    `loads`: load of each bundle; loads far above `want` do not count. If all together carry less than `want`, return
    how many carry 80 % of that.
    """
    sums = np.cumsum(np.sort(loads[loads <= 1.5 * want])[::-1])
    return int(np.searchsorted(sums, 0.8 * min(want, sums[-1]))) + 1 if len(sums) else 1


def is_due_soon(course: BrokerCourse, price: float, within: float) -> bool:
    """Return whether the cost of the broker's imbalance may exceed `price` within `within` seconds.

    If so, an early reading of the broker is useful.
    """
    excess = course.excess
    if excess is None or excess.rate <= 0:
        return False
    return (not is_confirmed(course) or excess.owed < price) and price <= excess.owed + excess.rate * within
