"""Stored forms of adopted and reverted thresholds, and of the balance by which their trial is judged.

Thresholds are planning parameters that a recalibration proposes. These values are parts of the documents `desired` and
`state/leader`. The feature that adopts thresholds contains the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TRIAL, KEPT = "trial", "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """Proposed thresholds that were adopted and are in effect.

    `digest`: the adopted proposal; "": it was reverted, and only earlier adopted values are in effect. `values`: all
    adopted values by parameter, also from earlier proposals. `instead_of`: the settings' values at the time of the
    adoption. `before`, `before_digest`: values and digest before this adoption, which a revert restores.
    `imbalance_high`, `moves_high`: upper ends of the predicted intervals (ratio, moves per hour). `state`: on trial
    (until moves were allowed for `trial_seconds`) or kept. `unjudged`: adoptions that were replaced during their trial,
    oldest first; a revert restores the last one. `compared_ms`: end (Unix ms) of the time before the trial with which
    the trial is compared; 0: `since_ms`. `namespaces`: names or patterns of the first stage of the trial: only these
    namespaces use `values`, all others use `before`; (): all namespaces use `values`."""

    digest: str
    strategy: str
    values: Mapping[str, float]
    instead_of: Mapping[str, float]
    before: Mapping[str, float] = field(default_factory=dict)
    before_digest: str = ""
    by: str = ""
    reason: str = ""
    since_ms: int = 0
    imbalance_high: float = 0.0
    moves_high: float = 0.0
    state: str = KEPT
    trial_seconds: float = 0.0
    unjudged: tuple[Adopted, ...] = ()
    compared_ms: int = 0
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverted:
    """Thresholds that an operator or the leader (`by`) reverted."""

    values: Mapping[str, float]
    by: str
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Sums over the cycles of ten minutes, from which a trial of thresholds is judged.

    `seconds`: time in which moves were allowed. `weighted`: imbalance times seconds. `moves`: moves by the strategy."""

    at_ms: int
    seconds: float = 0.0
    weighted: float = 0.0
    moves: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStage:
    """Sums over the cycles since an adoption for some namespaces, from which this stage is judged.

    `since_ms`: time of the adoption. `seconds`: time in which moves were allowed. `share`: share of the traffic that
    these namespaces have, times seconds. `weighted`, `other_weighted`: imbalance of these and of all other namespaces
    (`TimeStretch` in recalibration/rules/adoption.py), times seconds. `moves`, `other_moves`: moves by the strategy."""

    since_ms: int = 0
    seconds: float = 0.0
    share: float = 0.0
    weighted: float = 0.0
    other_weighted: float = 0.0
    moves: int = 0
    other_moves: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Realised:
    """Measured balance and moves of the last two days, stored for the next leader. `last_ms`: last cycle, Unix ms."""

    buckets: tuple[Bucket, ...] = ()
    last_ms: int = 0
    first_stage: FirstStage = field(default_factory=FirstStage)
