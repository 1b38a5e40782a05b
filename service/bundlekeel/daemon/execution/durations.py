"""How long moves take here: learned from those that landed, per load manager."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

KEPT: Final = 200
# With fewer the slowest twentieth is not known.
ENOUGH: Final = 20
# A landing may take this many times as long as nearly all did before it counts as lost.
PATIENCE: Final = 3.0


class Durations:
    """The newest durations by mode (`modular`, `extensible`), in seconds from the first call to the landing."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[float]] = {}

    def add(self, mode: str, seconds: float) -> None:
        """A move landed."""
        if math.isfinite(seconds) and seconds >= 0:
            self._kept.setdefault(mode, deque(maxlen=KEPT)).append(seconds)

    def p95(self, mode: str) -> float | None:
        """Nineteen of twenty moves took no longer; None while fewer than twenty are known."""
        kept = sorted(self._kept.get(mode, ()))
        return kept[math.ceil(0.95 * len(kept)) - 1] if len(kept) >= ENOUGH else None

    def confirm_seconds(self, mode: str, usual: float, most: float) -> float:
        """How long to wait for a landing: never less than usual, never more than an intent allows (`most`)."""
        p95 = self.p95(mode)
        return usual if p95 is None else max(usual, min(most, PATIENCE * p95))
