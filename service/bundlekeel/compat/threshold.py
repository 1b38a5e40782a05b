"""Exact copies of `ThresholdShedder` and `OverloadShedder` of Pulsar 4.0, 4.2 and 5.0, which do not differ here."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from bundlekeel.compat.picture import CompatPicture, running_sum, smoothed, total
from bundlekeel.compat.result import CompatResult
from bundlekeel.model.codes import Code
from bundlekeel.model.load import THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Verdict
from bundlekeel.planning.memory import CompatMemory

_MARGIN: Final = 0.05
_LOWER_BOUNDARY_MARGIN: Final = 0.5
_MB: Final = 1024.0 * 1024.0


class _Selection:
    """The bundles that are selected so far, and the verdicts of their brokers."""

    def __init__(self, picture: CompatPicture, release: str) -> None:
        self.picture = picture
        self.size = total(picture.bundles.short, THROUGHPUT_IN, THROUGHPUT_OUT)
        self.movable = picture.movable(release)
        self.taken: list[tuple[int, int]] = []
        self.verdicts: list[Verdict] = []

    def take(self, broker: int, relief: float) -> None:
        """Select bundles, largest first, until they carry at least `relief` bytes/s; at least one bundle."""
        rows, sizes = self.movable.ranked(broker, self.size)
        if len(rows) == 0:
            self.say(broker, Code.NO_BUNDLES, "none of its bundles may be unloaded")
            return
        with np.errstate(invalid="ignore", over="ignore"):
            enough = np.flatnonzero(~(np.cumsum(sizes[:-1]) < relief))
        count = int(enough[0]) + 1 if len(enough) else len(rows)
        self.taken.extend((row, broker) for row in rows[:count].tolist())
        self.say(broker, Code.OVERLOADED, f"{count} bundles to give off {relief:.0f} B/s")

    def shed(self, broker: int, relief: float) -> None:
        """Select bundles as `take` does, if the broker has at least two bundles."""
        count = int(self.picture.bundle_count[broker])
        if count > 1:
            self.take(broker, relief)
        else:
            self.say(broker, Code.SOLE_BUNDLE if count else Code.NO_BUNDLES, "overloaded by one bundle, or by none")

    def say(self, broker: int, code: Code, sentence: str) -> None:
        self.verdicts.append(Verdict(code=code, sentence=sentence, broker=self.picture.brokers[broker]))

    def result(self, memory: CompatMemory, calm: str) -> CompatResult:
        """Return the result of the shedder. `calm`: sentence of the verdict if no broker should shed."""
        if self.taken:
            verdict = Verdict(code=Code.OVERLOADED, sentence=f"{len(self.taken)} bundles to unload")
        elif self.verdicts:
            verdict = Verdict(code=self.verdicts[0].code, sentence=self.verdicts[0].sentence)
        else:
            verdict = Verdict(code=Code.BALANCED, sentence=calm)
        return CompatResult(unload=tuple(self.taken), memory=memory, verdict=verdict, brokers=tuple(self.verdicts))


def overload(picture: CompatPicture, params: Parameters, memory: CompatMemory, release: str) -> CompatResult:
    """Unload throughput of each broker at or above the overload threshold: its usage above the threshold, plus 5 %."""
    limit = params.overloaded_threshold_percent / 100.0
    usage, throughput = picture.usage(params), picture.throughput()
    selection = _Selection(picture, release)
    with np.errstate(invalid="ignore", over="ignore"):
        relief = throughput * (usage - limit + _MARGIN)
    for broker in np.flatnonzero(~(usage < limit)).tolist():
        selection.shed(broker, float(relief[broker]))
    return selection.result(memory, f"no broker is at {limit:.1%} or above")


def threshold(picture: CompatPicture, params: Parameters, memory: CompatMemory, release: str) -> CompatResult:
    """Unload throughput of brokers with smoothed usage at or above average + threshold: the usage above, plus 5 %."""
    limit = params.threshold_percent / 100.0
    minimum = params.min_unload_throughput_mb * _MB
    usage = picture.usage(params)
    history, average = _advance(picture, params, memory, usage)
    memory = _remember(picture, memory, history)
    if average == 0:
        verdict = Verdict(code=Code.ZERO_AVERAGE, sentence="the average usage is 0")
        return CompatResult(unload=(), memory=memory, verdict=verdict)
    selection = _Selection(picture, release)
    with np.errstate(invalid="ignore", over="ignore"):
        relief = picture.throughput() * (history - average - limit + _MARGIN)
        hot = np.flatnonzero(~(history < average + limit)).tolist()
    for broker in hot:
        if relief[broker] < minimum:
            selection.say(broker, Code.BELOW_MINIMUM, f"{relief[broker]:.0f} B/s are below {minimum:.0f}")
        else:
            selection.shed(broker, float(relief[broker]))
    if not selection.taken and params.lower_boundary_shedding:
        # Pulsar's class smooths the usage a second time here, within the same cycle.
        history, average = _advance(picture, params, memory, usage)
        memory = _remember(picture, memory, history)
        _lower_boundary(selection, history, average, limit, minimum)
    return selection.result(memory, f"no broker is at {average:.1%} + {limit:.1%} or above")


def _advance(picture: CompatPicture, params: Parameters, memory: CompatMemory, usage: Floats) -> tuple[Floats, float]:
    history = smoothed(memory.usage, picture.brokers, usage, params.history_weight)
    return history, running_sum(history) / len(history) if len(history) else 0.0


def _remember(picture: CompatPicture, memory: CompatMemory, history: Floats) -> CompatMemory:
    # Brokers that left are dropped, because the load manager passes only present ones to the class.
    return replace(memory, usage=dict(zip(picture.brokers, history.tolist(), strict=True)))


def _lower_boundary(selection: _Selection, history: Floats, average: float, limit: float, minimum: float) -> None:
    """Unload a little from the most loaded broker with several bundles if a broker is far below the average."""
    picture = selection.picture
    bound = average - limit
    with np.errstate(invalid="ignore", over="ignore"):
        someone_idle = bool((history < bound).any())
        able = np.flatnonzero((history > bound) & (picture.bundle_count > 1))
        if not someone_idle or len(able) == 0:
            return
        source = int(able[np.argmax(history[able])])
        relief = float(picture.throughput()[source] * limit * _LOWER_BOUNDARY_MARGIN)
    if minimum > relief:
        selection.say(source, Code.BELOW_MINIMUM, f"{relief:.0f} B/s are below {minimum:.0f}")
    else:
        selection.take(source, relief)
