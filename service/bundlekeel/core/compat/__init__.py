"""Pulsar's own shedders and placements, bare, per release: what `compat: "4.0"` and `compat: "4.2"` mean.

Each reproduces one class of `org.apache.pulsar.broker.loadbalance.impl` to the last bit, defects included;
tests/parity runs the real classes beside them. Where Java's result depends on the order of its hash maps, the order
of the picture's rows stands for it; where it draws at random, the set it draws from is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bundlekeel.core.compat.avg import avg
from bundlekeel.core.compat.picture import BundleColumns, CompatPicture
from bundlekeel.core.compat.placement import Placer, select
from bundlekeel.core.compat.result import CompatResult
from bundlekeel.core.compat.threshold import overload, threshold
from bundlekeel.core.compat.uniform import uniform
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.planning.memory import CompatMemory

__all__ = ["COMPAT_SHEDDERS", "BundleColumns", "CompatPicture", "CompatResult", "Placer", "select", "shed"]

_Shedder = Callable[[CompatPicture, Parameters, CompatMemory, str], CompatResult]

COMPAT_SHEDDERS: Mapping[str, _Shedder] = {"threshold": threshold, "overload": overload, "uniform": uniform, "avg": avg}


def shed(picture: CompatPicture, params: Parameters, memory: CompatMemory, strategy: str, release: str) -> CompatResult:
    """One call of `findBundlesForUnloading`. `release`: "4.0" or "4.2"; KeyError for a strategy Pulsar lacks."""
    return COMPAT_SHEDDERS[strategy](picture, params, memory, release)
