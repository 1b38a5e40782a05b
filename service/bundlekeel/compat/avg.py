"""Exact copy of `AvgShedder` (PIP-364). Before 5.0, a target belongs to the data of a bundle, not to its name."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bundlekeel.compat.javamaps import table_of
from bundlekeel.compat.picture import DEFAULT_TRAFFIC, BundleColumns, CompatPicture, sort_key, total
from bundlekeel.compat.result import CompatResult
from bundlekeel.model.averages import LONG_SAMPLES, SHORT_SAMPLES
from bundlekeel.model.codes import Code
from bundlekeel.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats, Ints
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Verdict
from bundlekeel.planning.memory import CompatMemory


def avg(picture: CompatPicture, params: Parameters, memory: CompatMemory, release: str) -> CompatResult:
    """Pair the i-th least with the i-th most loaded broker, and move bundles if they differ in enough calls."""
    low, high = dict(memory.low), dict(memory.high)
    # The class uses one HashMap of scores for its whole life, and its table never shrinks.
    table = max(memory.table, table_of(len(picture.brokers)))
    memory = replace(memory, table=table, planned={})
    pairs = _count(picture, params, table, low, high)
    if not pairs:
        verdict = Verdict(code=Code.BALANCED, sentence="no pair differs by the low threshold")
        return CompatResult(unload=(), memory=replace(memory, low={}, high={}), verdict=verdict)
    acting = _acting(picture, params, pairs, low, high)
    select = _Selector(picture, params, release)
    for cold, hot in acting:
        select.take(cold, hot)
    memory = replace(memory, low=low, high=high)
    to: dict[int, int] = {}
    if release in ("4.0", "4.2"):
        to, targets = select.destinations()
        memory = replace(memory, chosen={**memory.chosen, **targets})
    else:
        memory = replace(memory, planned=select.plan())
    return CompatResult(
        unload=tuple((row, hot) for row, hot, _ in select.taken),
        to=to,
        memory=memory,
        verdict=_verdict(len(pairs), len(acting), len(select.taken)),
        brokers=tuple(select.verdicts),
    )


def _count(
    picture: CompatPicture, params: Parameters, table: int, low: dict[str, int], high: dict[str, int]
) -> list[tuple[int, int]]:
    """Return the pairs (less loaded, more loaded) above the low threshold; count such calls in `low` and `high`.

    The middle broker is paired with itself.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        scores = picture.usage(params) * 100
        order = _order(picture, scores, table)
        colds = order[: (len(order) + 1) // 2]
        hots = order[::-1][: len(colds)]
        apart = scores[hots] - scores[colds]
    pairs = []
    for cold, hot, difference in zip(colds.tolist(), hots.tolist(), apart.tolist(), strict=True):
        names = picture.brokers[hot], picture.brokers[cold]
        if difference < params.avg_low_threshold_percent:
            for name in names:
                low.pop(name, None)
                high.pop(name, None)
            continue
        pairs.append((cold, hot))
        for name in names:
            low[name] = low.get(name, 0) + 1
        for name in names:
            if difference < params.avg_high_threshold_percent:
                high.pop(name, None)
            else:
                high[name] = high.get(name, 0) + 1
    return pairs


def _order(picture: CompatPicture, scores: Floats, table: int) -> Ints:
    """Return the brokers (rows) from the lowest to the highest score; equal brokers in the order of Java's HashMap."""
    if picture.hashes is None:
        return np.argsort(sort_key(scores), kind="stable")
    return np.lexsort((picture.hashes & (table - 1), sort_key(scores)))


def _acting(
    picture: CompatPicture, params: Parameters, pairs: list[tuple[int, int]], low: dict[str, int], high: dict[str, int]
) -> list[tuple[int, int]]:
    """Return the pairs that differed in enough calls; delete their counters, even if no bundle can move."""
    acting = []
    for pair in pairs:
        names = [picture.brokers[row] for row in pair]
        if any(high.get(name, 0) >= params.avg_hit_count_high for name in names) or any(
            low.get(name, 0) >= params.avg_hit_count_low for name in names
        ):
            acting.append(pair)
            for name in names:
                low.pop(name, None)
                high.pop(name, None)
    return acting


def _verdict(pairs: int, acting: int, unloads: int) -> Verdict:
    if unloads:
        return Verdict(code=Code.OVERLOADED, sentence=f"{unloads} bundles to unload, {acting} of {pairs} pairs act")
    if acting:
        return Verdict(code=Code.NO_BUNDLES, sentence=f"{acting} pairs act, but no bundle fits")
    return Verdict(code=Code.HIT_COUNT, sentence=f"{pairs} pairs differ, but not often enough yet")


class _Selector:
    """Selects bundles to move, one pair of brokers at a time. `taken`: rows of bundle, source and target, in order."""

    def __init__(self, picture: CompatPicture, params: Parameters, release: str) -> None:
        short = picture.bundles.short
        self.picture, self.params = picture, params
        self.movable = picture.movable(release)
        self.rates, self.sizes = total(short, RATE_IN, RATE_OUT), total(short, THROUGHPUT_IN, THROUGHPUT_OUT)
        self.broker_rate, self.broker_size = picture.rate().tolist(), picture.throughput().tolist()
        self.taken: list[tuple[int, int, int]] = []
        self.verdicts: list[Verdict] = []

    def take(self, cold: int, hot: int) -> None:
        """Select the largest bundles of `hot` that together fit into a share of its difference to `cold`."""
        ratio = self.params.max_unload_ratio
        messages = (self.broker_rate[hot] - self.broker_rate[cold]) * ratio
        size = (self.broker_size[hot] - self.broker_size[cold]) * ratio
        if messages > self.params.min_unload_message_rate:
            values, left = self.rates, messages
        elif size > self.params.min_unload_throughput:
            values, left = self.sizes, size
        else:
            self._say(hot, Code.BELOW_MINIMUM, f"{messages:.0f} msg/s and {size:.0f} B/s are below the minima")
            return
        rows, ranked = self.movable.ranked(hot, values)
        fitting = _fitting(ranked, left)
        for row in rows[fitting].tolist():
            self.taken.append((row, hot, cold))
        code = Code.OVERLOADED if fitting else Code.NO_BUNDLES
        self._say(hot, code, f"{len(fitting)} bundles to {self.picture.brokers[cold]}")

    def plan(self) -> dict[str, tuple[str, str]]:
        """Return source and target of each selected bundle, by its name; of two reports with one bundle, the last."""
        names, brokers = self.picture.bundles.names, self.picture.brokers
        return {names[row]: (brokers[hot], brokers[cold]) for row, hot, cold in self.taken}

    def destinations(self) -> tuple[dict[int, int], dict[str, str]]:
        """Return the target of each selected bundle, by row and by bundle *data*.

        Pulsar's class stores targets in a map with the bundle data as key. So bundles with equal data share one target:
        the target of the last such bundle.
        """
        rows, brokers = [row for row, _, _ in self.taken], self.picture.brokers
        keys = data_keys(self.picture.bundles, rows)
        last = {key: cold for key, (_, _, cold) in zip(keys, self.taken, strict=True)}
        return (
            {row: last[key] for row, key in zip(rows, keys, strict=True)},
            {key: brokers[cold] for key, cold in last.items()},
        )

    def _say(self, hot: int, code: Code, sentence: str) -> None:
        self.verdicts.append(Verdict(code=code, sentence=sentence, broker=self.picture.brokers[hot]))


def _fitting(descending: Floats, left: float) -> list[int]:
    """Return the positions of values, largest first, that together fit into `left`, the traffic to move."""
    values: list[float] = descending.tolist()
    negated: list[float] = (-descending).tolist()
    # NaN comes first and is never selected; the search below needs a sorted list without it.
    position = int(np.isnan(descending).sum())
    positions = []
    while position < len(values):
        value = values[position]
        if not value > 0:
            break
        if value <= left:
            positions.append(position)
            left += -value
            position += 1
        else:
            position = bisect_left(negated, -left, lo=position + 1)
    return positions


def data_keys(bundles: BundleColumns, rows: Sequence[int]) -> list[str]:
    """Return one string per bundle. Two strings are equal exactly if Java's `BundleData.equals` is true."""
    picked: Ints = np.array(rows, dtype=np.int64)
    columns = (bundles.short[picked], bundles.long[picked], bundles.samples[picked], bundles.topics[picked, None])
    return [_digest(row) for row in np.column_stack([np.asarray(part, dtype=np.float64) for part in columns])]


def default_key() -> str:
    """Return the string that `data_keys` would return for a bundle without `BundleData`."""
    samples = (SHORT_SAMPLES, 0, LONG_SAMPLES, 0)
    return _digest(np.array([*DEFAULT_TRAFFIC, *DEFAULT_TRAFFIC, *samples, 0], dtype=np.float64))


def _digest(values: Floats) -> str:
    return hashlib.blake2b(values.tobytes(), digest_size=12).hexdigest()
