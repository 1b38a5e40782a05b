"""Exact copy of Pulsar's `UniformLoadShedder`. In 4.0 a bundle can exceed the traffic to move by 1,000 (#21906)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from bundlekeel.compat.picture import CompatPicture, total
from bundlekeel.compat.result import CompatResult
from bundlekeel.model.codes import Code
from bundlekeel.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Verdict
from bundlekeel.planning.memory import CompatMemory

_EPS: Final = 1e-6
_INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Extremes:
    """Largest and smallest value of a traffic column, and the broker with the largest (-1: all values are -1 or
    less)."""

    broker: int
    largest: float
    smallest: float


def uniform(picture: CompatPicture, params: Parameters, memory: CompatMemory, release: str) -> CompatResult:
    """Unload a share of the difference between the extreme brokers in message rate, or else in throughput."""
    rate, size = _extremes(picture.rate()), _extremes(picture.throughput())
    if _exceeds((rate.largest - rate.smallest) * 100, rate.smallest, params.msg_rate_difference_percent):
        values, extremes, minimum = (
            total(picture.bundles.short, RATE_IN, RATE_OUT),
            rate,
            params.min_unload_message_rate,
        )
        name = "message rate"
    elif _exceeds(size.largest, size.smallest, params.throughput_multiple):
        values, extremes = total(picture.bundles.short, THROUGHPUT_IN, THROUGHPUT_OUT), size
        minimum, name = params.min_unload_throughput, "throughput"
    else:
        verdict = Verdict(code=Code.BALANCED, sentence="message rate and throughput are within their limits")
        return CompatResult(unload=(), memory=memory, verdict=verdict)
    if extremes.broker < 0:
        # All values are negative, for which Pulsar's class fails.
        return CompatResult(unload=(), memory=memory, verdict=Verdict(code=Code.NO_BROKERS, sentence="no figures"))
    needed = to_int((extremes.largest - extremes.smallest) * params.uniform_max_unload_ratio)
    source = extremes.broker
    rows: list[int] = []
    if int(picture.bundle_count[source]) <= 1:
        code, text = Code.SOLE_BUNDLE, f"{name} differs too much, by one bundle or none"
    elif needed < minimum:
        code, text = Code.BELOW_MINIMUM, f"{name}: {needed} are below {minimum:.0f}"
    else:
        rows = _select(picture, params, values, source, needed, release)
        code, text = (Code.OVERLOADED if rows else Code.NO_BUNDLES), f"{name} differs too much: {len(rows)} bundles"
    broker_verdict = Verdict(code=code, sentence=text, broker=picture.brokers[source])
    return CompatResult(
        unload=tuple((row, source) for row in rows),
        memory=memory,
        verdict=Verdict(code=code, sentence=text),
        brokers=(broker_verdict,),
    )


def _extremes(values: Floats) -> _Extremes:
    """Return the extremes; of equal brokers the first. Like Java's, they start with -1 and the largest int."""
    broker, largest, smallest = -1, -1.0, float(_INT_MAX)
    for row, value in enumerate(values.tolist()):
        if value > largest:
            broker, largest = row, value
        smallest = min(smallest, value)
    return _Extremes(broker, largest, 1.0 if -_EPS <= smallest <= _EPS else smallest)


def _exceeds(dividend: float, divisor: float, limit: float) -> bool:
    return limit > 0 and dividend / divisor > limit


def _select(
    picture: CompatPicture, params: Parameters, values: Floats, source: int, needed: int, release: str
) -> list[int]:
    """Select, largest first, every bundle that fits into the rest of the traffic to unload (an integer, as in Java)."""
    rows, sizes = picture.movable(release).ranked(source, values)
    most, delta = params.max_unload_bundles, 1000 if release == "4.0" else 0
    selected: list[int] = []
    for row, value in zip(rows.tolist(), sizes.tolist(), strict=True):
        if most != -1 and len(selected) >= most:
            break
        if value <= _wrapped(needed + delta):
            needed = _wrapped(needed + to_int(-value))
            selected.append(row)
    return selected


def to_int(value: float) -> int:
    """Cast a double to a Java int: towards zero, saturating, NaN to 0."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return _INT_MAX if value > 0 else -_INT_MAX - 1
    return max(-_INT_MAX - 1, min(_INT_MAX, int(value)))


def _wrapped(value: int) -> int:
    """Return the value that a sum of Java ints has after an overflow."""
    return (value + 2**31) % 2**32 - 2**31
