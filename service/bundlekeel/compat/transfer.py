"""Exact copy of TransferShedder (PIP-192) of the extensible load manager in 4.0, 4.2 and 5.0, including its defects.

It moves bundles from a giver (a most loaded broker) to a taker (a least loaded one). Copied on purpose:

* one broker in its cool-down, or one registered broker without load data, ends the whole cycle;
* a broker with stale load data does not count in mean and deviation, but can still give or take;
* the deviation is the root of the mean of squares minus the square of the mean. Rounding can make it NaN, which is
  never above the target. If the first broker has load 0, there is a division by zero;
* for swaps, the taker's bundles are read only once for all bundles of a giver, and recent moves are ignored. Bundles
  that a swap returns count only with `loadBalancerDebugModeEnabled`;
* the last *reported* bundle never moves, even if the broker owns more;
* the taker changes only after a bundle has moved from a giver.

Sums and equal loads have the order of the brokers in the input; in a broker it is that of a concurrent hash map. 4.0
cannot exclude namespaces from shedding (PIP-380); otherwise these releases are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bundlekeel.model.codes import Code
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameters import Parameters

SUCCESS, SKIP = "Success", "Skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The used part of `BrokerLoadData`, in ratios, bytes/s, and Unix ms. NaN is allowed."""

    ema: float
    throughput_ema: float
    throughput_in: float
    throughput_out: float
    updated_at: int


@dataclass(frozen=True, slots=True)
class TopBundle:
    """One of a broker's top bundles: its name, bytes/s in and out."""

    name: str
    throughput_in: float
    throughput_out: float

    @property
    def throughput(self) -> float:
        """Return the sum of both directions, in bytes/s."""
        return self.throughput_in + self.throughput_out


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPicture:
    """Input of TransferShedder.

    `top`: top bundles by broker, lowest first. `missing`: registered brokers without load data. `recent`: bundles
    unloaded in the grace period. `recent_brokers`: time (ms) at which a broker last gave a bundle. `transferable`:
    whether filters and the channel allow a move (bundle, source, target); None: always.
    """

    now_ms: int
    brokers: Mapping[str, Load]
    top: Mapping[str, Sequence[TopBundle]]
    missing: Collection[str] = ()
    recent: Collection[str] = ()
    recent_brokers: Mapping[str, int] = field(default_factory=dict)
    transferable: Callable[[str, str, str], bool] | None = None

    def may_go(self, bundle: TopBundle, source: str, target: str) -> bool:
        """Return whether the bundle may move from source to target (`isTransferable`)."""
        return self.transferable is None or self.transferable(bundle.name, source, target)


@dataclass(frozen=True, slots=True)
class Unload:
    """One bundle to unload. `target`: "" if the next lookup chooses the broker (no transfer)."""

    source: str
    bundle: str
    target: str
    reason: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOutcome:
    """Result of one call of TransferShedder.

    `label` and `reason`: Success and the reason of the first decision, or the metric labels for a call without a
    decision. `hits`: calls in a row with a reason to shed, for the next call.
    """

    unloads: tuple[Unload, ...]
    label: str
    reason: Code
    hits: int


def find_bundles(picture: TransferPicture, params: Parameters, hits: int) -> TransferOutcome:
    """Run `TransferShedder.findBundlesForUnloading` of release `params.compat`.

    `hits`: earlier calls in a row with a reason to shed."""
    cycle = _Cycle(picture, params)
    obstacle = cycle.obstacle()
    if obstacle is not None:
        return TransferOutcome(unloads=(), label=SKIP, reason=obstacle, hits=hits)
    cycle.measure()
    hits = hits + 1 if cycle.reason() is not None else 0
    if hits <= params.transfer_hit_count:
        return TransferOutcome(unloads=(), label=SKIP, reason=Code.HIT_COUNT, hits=hits)
    cycle.run()
    # The class collects decisions in a set.
    unloads = tuple(dict.fromkeys(cycle.unloads))
    if unloads:
        return TransferOutcome(unloads=unloads, label=SUCCESS, reason=unloads[0].reason, hits=0)
    return TransferOutcome(unloads=(), label=SKIP, reason=cycle.why_nothing(), hits=hits)


class _Cycle:
    """State of one call of TransferShedder, which pairs brokers from both ends of the order by score."""

    def __init__(self, picture: TransferPicture, params: Parameters) -> None:
        self.picture = picture
        self.params = params
        self.unloads: list[Unload] = []
        self.order = sorted(picture.brokers, key=lambda broker: _java_order(picture.brokers[broker].ema))
        self.lowest, self.highest = 0, len(self.order) - 1
        self.shed = self.without_load = self.with_few = 0
        self.squares = self.mean = self.std = 0.0
        self.counted = 0

    def obstacle(self) -> Code | None:
        """Return the reason to skip the whole shedding cycle, or None."""
        params, ended, fresh = self.params, None, 0
        for broker, load in self.picture.brokers.items():
            if self._stale(load):
                ended = Code.OUT_DATED_DATA
                continue
            moved_at = self.picture.recent_brokers.get(broker)
            if moved_at is not None and load.updated_at - moved_at < params.transfer_delay_seconds * 1000:
                return Code.COOL_DOWN
            fresh += 1
        if fresh == 0:
            return ended or Code.NO_BROKERS
        if any(broker not in self.picture.brokers for broker in self.picture.missing):
            return Code.NO_LOAD_DATA
        return None

    def measure(self) -> None:
        """Compute mean and deviation over the brokers without stale data, added in the order of the input."""
        total = 0.0
        for load in self.picture.brokers.values():
            if not self._stale(load):
                total += load.ema
                self.squares += load.ema * load.ema
                self.counted += 1
        self.mean = total / self.counted
        self.std = _root(self.squares / self.counted - self.mean * self.mean)

    def reason(self) -> Code | None:
        """Return the reason to shed now, or None if the target deviation is met."""
        if self.std > self.params.transfer_target_std:
            return Code.OVERLOADED
        if self._underloaded():
            return Code.UNDERLOADED
        return Code.OVERLOADED if self._overloaded() else None

    def run(self) -> None:
        """Pair the most with the least loaded broker until the target deviation is met or no pair is left."""
        while self.shed < self.params.transfer_max_brokers and self.lowest < self.highest:
            reason = self.reason()
            if reason is None:
                return
            giver, taker = self.order[self.highest], self.order[self.lowest]
            self.highest -= 1
            bundles = self.picture.top.get(giver, ())
            if len(bundles) == 0:
                self.without_load += 1
            elif len(bundles) == 1:
                self.with_few += 1
            else:
                self._shed(giver, taker, bundles, reason)

    def why_nothing(self) -> Code:
        """Return the reason that TransferShedder counts in its metrics for a cycle without a decision."""
        if self.without_load:
            return Code.NO_LOAD_DATA
        return Code.NO_BUNDLES if self.with_few else Code.HIT_COUNT

    def _shed(self, giver: str, taker: str, bundles: Sequence[TopBundle], reason: Code) -> None:
        most, least = self.picture.brokers[giver], self.picture.brokers[taker]
        traffic = most.throughput_in + most.throughput_out
        pair = _Pair(
            traffic=traffic,
            other=least.throughput_in + least.throughput_out,
            relief=_divide(traffic * ((most.ema - least.ema) / 2), most.ema),
            # One iterator for all bundles of the giver, so a bundle that it has passed is not checked again.
            others=(item for item in self.picture.top[taker] if self.picture.may_go(item, taker, giver))
            if self.params.transfer_enabled and taker in self.picture.top
            else None,
        )
        left = len(bundles)
        for bundle in bundles:
            if self._excluded(bundle) or bundle.name in self.picture.recent:
                continue
            if not self.picture.may_go(bundle, giver, taker):
                continue
            if left <= 1:
                break
            if bundle.throughput == 0:
                continue
            back = pair.back(bundle)
            if back is None:
                break
            if self.params.transfer_debug_mode:
                pair.gained += sum(item.throughput for item in back)
            self.unloads += [Unload(taker, item.name, giver, reason) for item in back]
            self.unloads.append(Unload(giver, bundle.name, taker if self.params.transfer_enabled else "", reason))
            pair.marked += bundle.throughput
            left -= 1
        if pair.marked > 0:
            self._offload(most.ema, least.ema, _divide((pair.marked - pair.gained) * most.ema, traffic))
        else:
            self.with_few += 1

    def _offload(self, most: float, least: float, moved: float) -> None:
        """Update the deviation after `moved` has gone from the most to the least loaded broker; the mean stays."""
        self.squares -= most * most + least * least
        most, least = _at_least_zero(most - moved), least + moved
        self.squares += most * most + least * least
        self.std = _root(abs(self.squares / self.counted - self.mean * self.mean))
        self.shed += 1
        self.lowest += 1

    def _underloaded(self) -> bool:
        brokers, order = self.picture.brokers, self.order
        least, most = brokers[order[self.lowest]], brokers[order[self.highest]]
        share = min(0.5, max(0.0, self.params.transfer_target_std / 2))
        return least.ema < self.mean * share or least.throughput_ema < most.throughput_ema * share

    def _overloaded(self) -> bool:
        load = self.picture.brokers[self.order[self.highest]].ema
        limit = self.params.overloaded_threshold_percent / 100
        return load > limit and load > self.mean + self.params.transfer_target_std

    def _stale(self, load: Load) -> bool:
        return self.picture.now_ms - load.updated_at > self.params.load_data_ttl_seconds * 1000

    def _excluded(self, bundle: TopBundle) -> bool:
        return self.params.compat != "4.0" and namespace_of(bundle.name) in self.params.excluded_namespaces


@dataclass(slots=True, kw_only=True)
class _Pair:
    """A source (giver) and a target (taker), with values in bytes/s.

    `traffic`, `other`: traffic of giver and taker. `relief`: traffic to move. `others`: iterator over the taker's
    bundles for swaps. `marked`: traffic of selected bundles. `gained`: traffic that swaps return to the giver, counted
    only in debug mode.
    """

    traffic: float
    other: float
    relief: float
    others: Iterator[TopBundle] | None
    marked: float = 0.0
    gained: float = 0.0

    def back(self, bundle: TopBundle) -> list[TopBundle] | None:
        """Return the taker's bundles to move back so that `bundle` fits; []: no swap is needed; None: impossible."""
        # This is the class's own comparison; the inverse one differs for NaN.
        if not self.marked - self.gained + bundle.throughput > self.relief:
            return []
        giver = self.traffic - self.marked + self.gained - bundle.throughput
        taker = self.other + self.marked - self.gained + bundle.throughput
        returned: list[TopBundle] = []
        for item in self.others or ():
            gained, lost = giver + item.throughput, taker - item.throughput
            if item.throughput == 0 or not (gained < self.traffic and lost < self.traffic):
                continue
            returned.append(item)
            giver, taker = gained, lost
            if taker <= giver < self.traffic * 0.75:
                return returned
        return None


def _java_order(value: float) -> tuple[bool, float, bool]:
    """Return a sort key equal to `Double.compare`: NaN is the greatest, and -0.0 is below 0.0."""
    nan = math.isnan(value)
    return nan, 0.0 if nan else value, math.copysign(1.0, value) > 0 or nan


def _divide(value: float, by: float) -> float:
    """Divide as Java does: division by zero returns an infinity or NaN."""
    if by != 0:
        return value / by
    return math.nan if value == 0 or math.isnan(value) else math.copysign(math.inf, value) * math.copysign(1.0, by)


def _root(value: float) -> float:
    """Return `Math.sqrt`: NaN below zero."""
    return math.sqrt(value) if value >= 0 else math.nan


def _at_least_zero(value: float) -> float:
    """Return `Math.max(0, value)`: NaN for NaN."""
    return value if value > 0 or math.isnan(value) else 0.0
