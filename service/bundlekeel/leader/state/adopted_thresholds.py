"""Stored forms of adopted and reverted thresholds, and of the balance by which a trial is judged.

They are parts of the documents `desired` and `state/leader`. The rules for them are in the feature that adopts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TRIAL, KEPT = "trial", "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """Proposed thresholds that were adopted and are in effect.

    `digest`: the adopted proposal; "": it was reverted, and only earlier adopted values are in effect. `values`: all
    adopted values by parameter, also from earlier proposals. `instead_of`: the values of the settings at that time.
    `before`, `before_digest`: values and digest before this adoption, which a revert restores. `imbalance_high`,
    `moves_high`: upper ends of the predicted intervals (ratio, moves per hour). `state`: on trial (until moves were
    allowed for `trial_seconds`) or kept. `unjudged`: adoptions that were replaced during their trial, oldest first; a
    revert restores the last one. `compared_ms`: end (Unix ms) of the time before the trial with which the trial is
    compared; 0: `since_ms`.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverted:
    """Reverted thresholds: values, operator or leader, reason and time."""

    values: Mapping[str, float]
    by: str
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Ten minutes of cycles: recorded seconds while acting, imbalance times seconds, and moves of the strategy."""

    at_ms: int
    seconds: float = 0.0
    weighted: float = 0.0
    moves: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Realised:
    """Balance and moves of the last two days, stored for the next leader. `last_ms`: last recorded cycle, Unix ms."""

    buckets: tuple[Bucket, ...] = ()
    last_ms: int = 0
