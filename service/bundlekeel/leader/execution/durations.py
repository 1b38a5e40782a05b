"""Durations of recent moves in this cluster, per load manager."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

KEPT: Final = 200
# The 95th percentile needs at least this number of durations.
ENOUGH: Final = 20
# A move counts as lost after this multiple of the 95th percentile.
PATIENCE: Final = 3.0


class Durations:
    """Recent durations of moves, in seconds from the first call to the landing, by load manager."""

    def __init__(self) -> None:
        self._durations: dict[str, deque[float]] = {}

    def add(self, mode: str, seconds: float) -> None:
        """Add the duration of a landed move."""
        if math.isfinite(seconds) and seconds >= 0:
            self._durations.setdefault(mode, deque(maxlen=KEPT)).append(seconds)

    def p95(self, mode: str) -> float | None:
        """Return the 95th percentile of these durations in seconds; None: fewer than `ENOUGH` moves."""
        durations = sorted(self._durations.get(mode, ()))
        return durations[math.ceil(0.95 * len(durations)) - 1] if len(durations) >= ENOUGH else None

    def confirm_seconds(self, mode: str, usual: float, most: float) -> float:
        """Return how many seconds to wait until a bundle has landed: `PATIENCE` times the 95th percentile.

        The result is from `usual` to `most`; it is `usual` if `most` is shorter or too few moves are known."""
        p95 = self.p95(mode)
        return usual if p95 is None else max(usual, min(most, PATIENCE * p95))
