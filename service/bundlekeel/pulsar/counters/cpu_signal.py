"""Detects changes of a broker's load by the CPU time of its process: a response of 9 KB instead of a metrics page.

CPU use varies by a tenth and more, for example while the broker collects garbage or writes a page for Prometheus. So a
value is unusual only if it is outside of the range of all values of more than the last minute.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

# 28 probes 3 s apart contain a scrape of Prometheus, which comes once a minute by default.
_VALUES: Final = 28
# With fewer values, no value counts as unusual.
_LEAST_VALUES: Final = 6


@dataclass(slots=True)
class CpuSignal:
    """Recent CPU use of one broker's process, in cores, oldest first."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=_VALUES))
    before: tuple[float, float] | None = None
    """Time (seconds) and CPU seconds of the last reading; None: the next reading only starts a measurement."""

    def surprise(self, at: float, cpu_seconds: float) -> float:
        """Add a reading of the CPU time. Returns by how many cores the CPU use since the last reading is outside the
        range of earlier values; 0.0: inside.
        """
        before, self.before = self.before, (at, cpu_seconds)
        if before is None or at <= before[0] or cpu_seconds < before[1]:
            return 0.0
        cores = (cpu_seconds - before[1]) / (at - before[0])
        # Without the newest earlier value, which may be the first one after the change.
        usual = list(self.values)[:-1]
        self.values.append(cores)
        if len(usual) < _LEAST_VALUES:
            return 0.0
        return max(0.0, min(usual) - cores, cores - max(usual))
