"""The guard's pure part: which bundles may move at all, and which moves of a plan fit the budgets of this cycle.

The rest of the guard (hours, tenants, windows, adaptive rate) is issue D; its place is `admit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bundlekeel.core.codes import Code
from bundlekeel.core.filters.allowed import Limits
from bundlekeel.core.load import Floats
from bundlekeel.core.names import namespace_of
from bundlekeel.core.params import Parameters
from bundlekeel.core.plan import Move, Refusal
from bundlekeel.core.snapshot import Bools, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A finished move the guard remembers: when, and where the bundle came from."""

    at_ms: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A move that was begun, for the budgets of an hour. `share`: of its source's traffic then, 0..1."""

    bundle: str
    source: str
    target: str
    at_ms: int
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFailed:
    """An attempt to split that came to nothing: when, and the code that says why."""

    at_ms: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What the guard knows besides the snapshot: last moves, frozen intents, pins (bundle -> expiry ms),
    splits that came to nothing. `recent_brokers`: when (ms) a broker gave a bundle, where the bundle is not known.

    `last_hour`: moves begun in the last hour, oldest first. `cordoned`: brokers that get nothing; `draining`: those
    that are emptied and kept empty (cordoned as well); `warming`: those that are filled gently. `excluded`: patterns of
    tenants, namespaces, bundles and brokers left alone, with their expiry in ms (0: none). `changed_brokers`: when (ms)
    a broker came, went or restarted. `quarantined`: (source, target) pairs whose moves did not help, with their expiry.
    `rate`: moves the adaptive rate allows in this cycle, None: no limit from there.
    """

    recent: Mapping[str, Moved] = field(default_factory=dict)
    recent_brokers: Mapping[str, int] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    pinned: Mapping[str, int] = field(default_factory=dict)
    split_failed: Mapping[str, SplitFailed] = field(default_factory=dict)
    last_hour: tuple[Begun, ...] = ()
    cordoned: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    warming: frozenset[str] = frozenset()
    excluded: Mapping[str, int] = field(default_factory=dict)
    changed_brokers: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rate: int | None = None


class Codes(Mapping[int, Code]):
    """Code by bundle row, for the rows that have one; kept as one byte a bundle, because most clusters are idle."""

    def __init__(self, numbers: NDArray[np.int8]) -> None:
        self.numbers = numbers

    def __getitem__(self, row: int) -> Code:
        number = int(self.numbers[row])
        if number < 0:
            raise KeyError(row)
        return _CODES[number]

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.numbers >= 0).tolist())

    def __len__(self) -> int:
        return int((self.numbers >= 0).sum())

    def rows_with(self, wanted: Collection[Code]) -> list[int]:
        """The rows whose code is one of these, in row order."""
        rows: list[int] = np.flatnonzero(np.isin(self.numbers, [_CODES.index(code) for code in wanted])).tolist()
        return rows


# Why a bundle may not be chosen at all; when several hold, the later one is told.
_CODES = (
    Code.IDLE,
    Code.HAS_POLICY,
    Code.POLICY_FORBIDS,
    Code.POLICY_UNREADABLE,
    Code.EXCLUDED,
    Code.SYSTEM_BUNDLE,
    Code.SPLITTING,
    Code.COOL_DOWN,
    Code.PINNED,
    Code.UNSETTLED,
    Code.IN_TRANSIT,
    Code.FROZEN_INTENT,
)


@dataclass(frozen=True, slots=True)
class Eligibility:
    """`mask[row]`: the bundle may be chosen; `codes`: why not, for rows that may not."""

    mask: Bools
    codes: Codes

    def refusals(self, snapshot: Snapshot, broker: int) -> list[Refusal]:
        """The refusals of one broker's bundles."""
        rows = snapshot.bundles.rows_of(broker)
        names, owner, codes = snapshot.bundles.names, snapshot.brokers.ids[broker], self.codes
        return [
            Refusal(codes[row], names[row], owner) for row in (np.flatnonzero(~self.mask[rows]) + rows.start).tolist()
        ]


def eligibility(
    snapshot: Snapshot,
    state: GuardState,
    params: Parameters,
    now_ms: int,
    in_books: frozenset[str],
    unsettled: frozenset[str] = frozenset(),
    splitting: frozenset[str] = frozenset(),
    limits: Limits | None = None,
) -> Eligibility:
    """Which bundles may be chosen: not system, idle, excluded, pinned, frozen, cooling down, under way, unsettled,
    nor bound to their broker by policies (`limits`).

    `in_books` names bundles under way, `unsettled` those that landed but do not show in both reports yet, `splitting`
    those that this plan splits.
    """
    bundles = snapshot.bundles
    numbers = np.full(len(bundles), -1, dtype=np.int8)
    numbers[~((_traffic_sum(bundles.short) > 0) & (_traffic_sum(bundles.latest) > 0))] = _CODES.index(Code.IDLE)
    if limits is not None:
        numbers[limits.nowhere_else(bundles.namespace, bundles.owner)] = _CODES.index(Code.POLICY_FORBIDS)
        numbers[limits.unknown[bundles.namespace]] = _CODES.index(Code.POLICY_UNREADABLE)
    excluded = np.array([name in params.excluded_namespaces for name in bundles.namespaces], dtype=bool)
    if excluded.any():
        numbers[excluded[bundles.namespace]] = _CODES.index(Code.EXCLUDED)
    numbers[bundles.system] = _CODES.index(Code.SYSTEM_BUNDLE)
    single = {
        **dict.fromkeys(splitting, Code.SPLITTING),
        **_single_bundle_codes(state, params, now_ms, in_books, unsettled),
    }
    for row in bundles.rows_named(single):
        numbers[row] = _CODES.index(single[bundles.names[row]])
    return Eligibility(numbers < 0, Codes(numbers))


def leave_alone(found: Eligibility, rows: Bools) -> Eligibility:
    """The same, but these bundles (mask over all rows), if nothing else stops them, stay for their policies."""
    numbers = found.codes.numbers.copy()
    numbers[rows & found.mask] = _CODES.index(Code.HAS_POLICY)
    return Eligibility(numbers < 0, Codes(numbers))


def _traffic_sum(traffic: Floats) -> Floats:
    total: Floats = traffic.sum(axis=1)
    return total


def _single_bundle_codes(
    state: GuardState, params: Parameters, now_ms: int, in_books: frozenset[str], unsettled: frozenset[str]
) -> dict[str, Code]:
    until = now_ms - int(1000 * params.cool_down_seconds)
    codes = {name: Code.COOL_DOWN for name, moved in state.recent.items() if moved.at_ms > until}
    codes.update({name: Code.PINNED for name, expiry in state.pinned.items() if not expiry or expiry > now_ms})
    codes.update(dict.fromkeys(unsettled, Code.UNSETTLED))
    codes.update(dict.fromkeys(in_books, Code.IN_TRANSIT))
    codes.update(dict.fromkeys(state.frozen, Code.FROZEN_INTENT))
    return codes


def admit(moves: tuple[Move, ...], params: Parameters) -> tuple[tuple[Move, ...], tuple[Refusal, ...]]:
    """Split a plan's moves, in their order, into those that fit this cycle's budgets and typed refusals.

    A refused move is not lost: the next cycle plans again from what then is.
    """
    budgets: list[tuple[Code, int, Callable[[Move], str]]] = [
        (Code.BUDGET_PER_CYCLE, params.max_moves_per_cycle, lambda _: ""),
        (Code.BUDGET_PER_SOURCE, params.max_moves_per_source, lambda move: move.source),
        (Code.BUDGET_PER_TARGET, params.max_moves_per_target, lambda move: move.target),
        (Code.BUDGET_PER_NAMESPACE, params.max_moves_per_namespace, lambda move: namespace_of(move.bundle)),
    ]
    used: Counter[tuple[Code, str]] = Counter()
    admitted: list[Move] = []
    refused: list[Refusal] = []
    for move in moves:
        full = next((item for item in budgets if used[item[0], item[2](move)] >= item[1]), None)
        if full is None:
            admitted.append(move)
            used.update((code, key(move)) for code, _, key in budgets)
        else:
            refused.append(Refusal(code=full[0], bundle=move.bundle, broker=move.source, detail=f"limit {full[1]}"))
    return tuple(admitted), tuple(refused)


def completeness(snapshot: Snapshot, params: Parameters) -> Refusal | None:
    """The completeness gate: None when enough brokers have a usable report, else why nothing may move."""
    usable = len(snapshot.brokers)
    if snapshot.registered and usable / snapshot.registered >= params.min_complete_ratio:
        return None
    detail = (
        f"{usable} of {snapshot.registered} live brokers have a usable report, {params.min_complete_ratio:.0%} needed"
    )
    return Refusal(code=Code.INCOMPLETE_PICTURE, detail=detail)
