"""Exact copies of Pulsar's own shedders and placements, by release, for `compat: "4.0"`, `"4.2"` and `"5.0"`.

Each reproduces one class of `org.apache.pulsar.broker.loadbalance.impl` to the last bit, including defects;
tests/parity compares them with the real classes. If Java's result depends on the order of its hash maps, the rows of
the input have that order. If Java draws at random, the result contains the set from which it draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bundlekeel.compat.avg import avg
from bundlekeel.compat.picture import BundleColumns, CompatPicture
from bundlekeel.compat.placement import Placer
from bundlekeel.compat.result import CompatResult
from bundlekeel.compat.threshold import overload, threshold
from bundlekeel.compat.uniform import uniform
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.memory import CompatMemory

__all__ = ["COMPAT_SHEDDERS", "BundleColumns", "CompatPicture", "CompatResult", "Placer", "shed"]

_Shedder = Callable[[CompatPicture, Parameters, CompatMemory, str], CompatResult]

COMPAT_SHEDDERS: Mapping[str, _Shedder] = {"threshold": threshold, "overload": overload, "uniform": uniform, "avg": avg}


def shed(picture: CompatPicture, params: Parameters, memory: CompatMemory, strategy: str, release: str) -> CompatResult:
    """Run `findBundlesForUnloading` of Pulsar's shedder once. `release`: "4.0", "4.2" or "5.0".

    Raises KeyError if Pulsar does not have the strategy.
    """
    return COMPAT_SHEDDERS[strategy](picture, params, memory, release)
