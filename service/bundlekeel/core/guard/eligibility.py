"""Which bundles may move at all.

Forbidden targets and what all brokers wait for are in `holds`, budgets in `budgets`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bundlekeel.core.filters.allowed import AllowedTargets
from bundlekeel.core.guard.scope import excluded_bundles, not_taken_over
from bundlekeel.core.guard.state import GuardState
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import Floats
from bundlekeel.core.model.names import is_v1
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Refusal
from bundlekeel.core.model.snapshot import Bools, Snapshot


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
    Code.OUTSIDE_WINDOW,
    Code.ROLLOUT_HOLD,
    Code.BLAST_RADIUS,
    Code.IDLE,
    Code.HAS_POLICY,
    Code.POLICY_FORBIDS,
    Code.POLICY_UNREADABLE,
    Code.V1_NAMESPACE,
    Code.EXCLUDED,
    Code.NOT_TAKEN_OVER,
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
    """`mask[row]`: the bundle may be chosen; `codes`: why not, for rows that may not; `frees_ms`: when that ends, where
    it is known."""

    mask: Bools
    codes: Codes
    frees_ms: Mapping[int, int] = field(default_factory=dict)

    def refusals(self, snapshot: Snapshot, broker: int) -> list[Refusal]:
        """The refusals of one broker's bundles."""
        rows = snapshot.bundles.rows_of(broker)
        names, owner, codes = snapshot.bundles.names, snapshot.brokers.ids[broker], self.codes
        ends = self.frees_ms
        return [
            Refusal(codes[row], names[row], owner, frees_ms=ends.get(row, 0))
            for row in ((~self.mask[rows]).nonzero()[0] + rows.start).tolist()
        ]


def eligibility(
    snapshot: Snapshot,
    state: GuardState,
    params: Parameters,
    now_ms: int,
    in_books: frozenset[str],
    unsettled: frozenset[str] = frozenset(),
    splitting: frozenset[str] = frozenset(),
    limits: AllowedTargets | None = None,
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
    v1 = np.array([is_v1(name) for name in bundles.namespaces], dtype=bool)
    numbers[v1[bundles.namespace]] = _CODES.index(Code.V1_NAMESPACE)
    excluded = excluded_bundles(snapshot, state, params, now_ms)
    numbers[excluded] = _CODES.index(Code.EXCLUDED)
    numbers[excluded & not_taken_over(bundles, state)] = _CODES.index(Code.NOT_TAKEN_OVER)
    numbers[bundles.system] = _CODES.index(Code.SYSTEM_BUNDLE)
    single = {
        **dict.fromkeys(splitting, Code.SPLITTING),
        **_single_bundle_codes(state, params, now_ms, in_books, unsettled),
    }
    ends: dict[int, int] = {}
    for row in bundles.rows_named(single):
        code, name = single[bundles.names[row]], bundles.names[row]
        numbers[row] = _CODES.index(code)
        ends[row] = _end(state, params, name, code)
    return Eligibility(numbers < 0, Codes(numbers), ends)


def _end(state: GuardState, params: Parameters, name: str, code: Code) -> int:
    """When a bundle's own obstacle ends (ms); 0: not known."""
    if code is Code.COOL_DOWN:
        return state.recent[name].at_ms + rest_ms(state, params, name)
    return state.pinned[name] if code is Code.PINNED else 0


def rest_ms(state: GuardState, params: Parameters, bundle: str) -> int:
    """How long a bundle that moved is left alone. Longer where rates are limited: clients that are cut off come back
    with all that has waited, and Pulsar's ResourceGroups begin at the new broker with next to nothing."""
    factor = params.cool_down_limited_factor if bundle in state.limited else 1.0
    return int(1000 * params.cool_down_seconds * factor)


def leave_alone(found: Eligibility, rows: Bools) -> Eligibility:
    """The same, but these bundles (mask over all rows), if nothing else stops them, stay for their policies."""
    numbers = found.codes.numbers.copy()
    numbers[rows & found.mask] = _CODES.index(Code.HAS_POLICY)
    return Eligibility(numbers < 0, Codes(numbers), found.frees_ms)


def hold_back(found: Eligibility, rows: Bools, code: Code, until_ms: int) -> Eligibility:
    """The same, but these bundles (mask over all rows), if nothing else stops them, wait until then (0: unknown)."""
    waiting = rows & found.mask
    numbers = found.codes.numbers.copy()
    numbers[waiting] = _CODES.index(code)
    ends = dict.fromkeys(np.flatnonzero(waiting).tolist(), until_ms) if until_ms else {}
    return Eligibility(numbers < 0, Codes(numbers), {**found.frees_ms, **ends})


def _traffic_sum(traffic: Floats) -> Floats:
    # Adding columns is many times faster than summing rows of four.
    total: Floats = traffic[:, 0] + traffic[:, 1] + traffic[:, 2] + traffic[:, 3]
    return total


def _single_bundle_codes(
    state: GuardState, params: Parameters, now_ms: int, in_books: frozenset[str], unsettled: frozenset[str]
) -> dict[str, Code]:
    codes = {
        name: Code.COOL_DOWN
        for name, moved in state.recent.items()
        if moved.at_ms > now_ms - rest_ms(state, params, name)
    }
    codes.update({name: Code.PINNED for name, expiry in state.pinned.items() if not expiry or expiry > now_ms})
    codes.update(dict.fromkeys(unsettled, Code.UNSETTLED))
    codes.update(dict.fromkeys(in_books, Code.IN_TRANSIT))
    codes.update(dict.fromkeys(state.frozen, Code.FROZEN_INTENT))
    return codes


def completeness(snapshot: Snapshot, params: Parameters) -> Refusal | None:
    """The completeness gate: None when enough brokers have a usable report, else why nothing may move."""
    usable = len(snapshot.brokers)
    if snapshot.registered and usable / snapshot.registered >= params.min_complete_ratio:
        return None
    detail = (
        f"{usable} of {snapshot.registered} live brokers have a usable report, {params.min_complete_ratio:.0%} needed"
    )
    return Refusal(code=Code.INCOMPLETE_PICTURE, detail=detail)
