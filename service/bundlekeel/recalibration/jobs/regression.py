"""Robust regression: a linear model that a minority of wrong points does not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import least_squares

from bundlekeel.model.load import Floats

# Huber's constant: 95 % as efficient as least squares if the errors are normal.
_HUBER: Final = 1.345
# Rounds of the fit. Each round measures the spread of the residuals again, and wrong points have less influence.
_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionLine:
    """The line y = base + slopes · x."""

    base: float
    slopes: Floats

    def predict(self, x: Floats) -> Floats:
        """Return the predictions; `x`: shape (n, columns)."""
        predictions: Floats = self.base + x @ self.slopes
        return predictions


def fit_huber(x: Floats, y: Floats) -> RegressionLine:
    """Fit a line with Huber's loss. `x`: (n, columns), `y`: (n,).

    Slopes are never negative: work does not free resources. Columns without variation get a slope of 0.
    Raises ValueError if there are fewer points than unknowns.
    """
    if len(y) < x.shape[1] + 2:
        raise ValueError(f"{len(y)} points for {x.shape[1] + 1} unknowns")
    scale, height = np.abs(x).max(axis=0), max(float(np.abs(y).max()), 1e-300)
    used = np.ptp(x, axis=0) > 1e-9 * scale
    # Scale all columns, and y, to about 1, because the solver's tolerances are made for such values.
    design, target = np.column_stack([np.ones(len(y)), x[:, used] / scale[used]]), y / height
    lowest = np.zeros(design.shape[1])
    start, spread, lowest[0] = np.full(len(lowest), 0.5), 1.0, -np.inf
    for _ in range(_ROUNDS):
        fit = least_squares(
            lambda line: design @ line - target,
            start,
            jac=lambda _: design,
            bounds=(lowest, np.inf),
            loss="huber",
            f_scale=_HUBER * spread,
        )
        start, before = fit.x, spread
        spread = max(1.4826 * float(np.median(np.abs(fit.fun))), 1e-9)
        if abs(spread - before) <= 1e-3 * before:
            break
    slopes = np.zeros(x.shape[1])
    slopes[used] = np.where(fit.active_mask[1:] == 0, fit.x[1:] * height / scale[used], 0.0)
    return RegressionLine(base=height * float(fit.x[0]), slopes=slopes)
