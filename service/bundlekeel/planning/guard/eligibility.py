"""Eligibility: which bundles may move, and the obstacle of each other bundle.

Reasons that stop the whole cluster are in `holds`, limits on the number of moves in `budgets`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Floats
from bundlekeel.model.names import is_v1
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Refusal
from bundlekeel.model.snapshot import Bools, Snapshot
from bundlekeel.planning.filters.allowed import AllowedTargets
from bundlekeel.planning.guard.scope import excluded_bundles, not_taken_over
from bundlekeel.planning.guard.state import GuardState


class Codes(Mapping[int, Code]):
    """Why bundles may not move: a code by bundle row. Bundles that may move have no code.

    Codes are stored in one byte per bundle, because many bundles are idle and have a code.
    """

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

    def rows_with(self, codes: Collection[Code]) -> list[int]:
        """Return the rows with one of these codes, in ascending order."""
        rows: list[int] = np.flatnonzero(np.isin(self.numbers, [_CODES.index(code) for code in codes])).tolist()
        return rows


# A bundle stays for this long after Pulsar split or merged a segment in it, until counters show its new load.
SEGMENTS_REST_MS: Final = 60_000
# Obstacles of a bundle. If several apply, the last one in this order is reported.
_CODES = (
    Code.OUTSIDE_WINDOW,
    Code.ROLLOUT_HOLD,
    Code.BLAST_RADIUS,
    Code.IDLE,
    Code.HAS_POLICY,
    Code.POLICY_FORBIDS,
    Code.POLICY_WITHOUT_BROKERS,
    Code.POLICY_UNREADABLE,
    Code.V1_NAMESPACE,
    Code.EXCLUDED,
    Code.NOT_TAKEN_OVER,
    Code.SYSTEM_BUNDLE,
    Code.SPLITTING,
    Code.SEGMENT_ABOVE_LIMIT,
    Code.SEGMENTS_CHANGED,
    Code.COOL_DOWN,
    Code.PINNED,
    Code.UNSETTLED,
    Code.IN_TRANSIT,
    Code.FROZEN_INTENT,
    Code.SERVED_TWICE,
)


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The bundles that may move, by row.

    `mask`: True if the bundle may move. `codes`: the obstacle of each other bundle. `frees_ms`: by bundle row, end of
    the obstacle, if known. `details`: by namespace (row), the policy of bundles with the code `PolicyWithoutBrokers`.
    """

    mask: Bools
    codes: Codes
    frees_ms: Mapping[int, int] = field(default_factory=dict)
    details: Mapping[int, str] = field(default_factory=dict)

    def refusals(self, snapshot: Snapshot, broker: int) -> list[Refusal]:
        """Return a refusal for each bundle of one broker (row) that may not move."""
        rows = snapshot.bundles.rows_of(broker)
        return [self.refusal(snapshot, row) for row in ((~self.mask[rows]).nonzero()[0] + rows.start).tolist()]

    def refusal(self, snapshot: Snapshot, row: int) -> Refusal:
        """Return the refusal of the bundle in this row, which may not move."""
        bundles, code = snapshot.bundles, self.codes[row]
        detail = self.details.get(int(bundles.namespace[row]), "") if code is Code.POLICY_WITHOUT_BROKERS else ""
        broker = snapshot.brokers.ids[int(bundles.owner[row])]
        return Refusal(code, bundles.names[row], broker, detail, frees_ms=self.frees_ms.get(row, 0))


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
    """Return which bundles may move, and the obstacle of all others.

    `in_books`: bundles that are moving. `unsettled`: bundles that have arrived, but source or target has not reported
    since then. `splitting`: bundles that this plan splits. `limits`: brokers that policies allow for each namespace.
    """
    bundles, details = snapshot.bundles, dict[int, str]()
    numbers = np.full(len(bundles), -1, dtype=np.int8)
    numbers[~((_traffic_sum(bundles.short) > 0) & (_traffic_sum(bundles.latest) > 0))] = _CODES.index(Code.IDLE)
    if limits is not None:
        numbers[limits.nowhere_else(bundles.namespace, bundles.owner)] = _CODES.index(Code.POLICY_FORBIDS)
        without = np.isin(bundles.namespace, list(limits.unmatched))
        numbers[without] = _CODES.index(Code.POLICY_WITHOUT_BROKERS)
        details = {row: f"isolation policy {name} matches no broker" for row, name in limits.unmatched.items()}
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
    return Eligibility(numbers < 0, Codes(numbers), ends, details)


def _end(state: GuardState, params: Parameters, name: str, code: Code) -> int:
    """Return the time (Unix ms) at which a bundle's obstacle ends; 0: unknown."""
    if code is Code.COOL_DOWN:
        return state.recent[name].at_ms + rest_ms(state, params, name)
    if code is Code.SEGMENTS_CHANGED:
        return state.segments_changed[name] + SEGMENTS_REST_MS
    if code is Code.SEGMENT_ABOVE_LIMIT:
        return state.segments_above[name]
    return state.pinned[name] if code is Code.PINNED else 0


def segment_codes(state: GuardState, now_ms: int) -> dict[str, Code]:
    """Return the obstacle of each bundle whose segments Pulsar split or merged recently, or is about to split."""
    codes = {name: Code.SEGMENT_ABOVE_LIMIT for name, until_ms in state.segments_above.items() if until_ms > now_ms}
    rested_ms = now_ms - SEGMENTS_REST_MS
    codes.update({name: Code.SEGMENTS_CHANGED for name, at_ms in state.segments_changed.items() if at_ms > rested_ms})
    return codes


def rest_ms(state: GuardState, params: Parameters, bundle: str) -> int:
    """Return the cool-down of a bundle (the time for which it stays after a move), in ms.

    It is longer for namespaces with rate limits: disconnected clients send their backlog after the move, while Pulsar's
    ResourceGroups start at the new broker with a very low limit.
    """
    factor = params.cool_down_limited_factor if bundle in state.limited else 1.0
    return int(1000 * params.cool_down_seconds * factor)


def leave_alone(eligible: Eligibility, rows: Bools) -> Eligibility:
    """Return a copy in which the bundles in the mask `rows` may not move because their namespaces have policies.

    Bundles with another obstacle keep that.
    """
    numbers = eligible.codes.numbers.copy()
    numbers[rows & eligible.mask] = _CODES.index(Code.HAS_POLICY)
    return replace(eligible, mask=numbers < 0, codes=Codes(numbers))


def hold_back(eligible: Eligibility, rows: Bools, code: Code, until_ms: int) -> Eligibility:
    """Return a copy in which the bundles in the mask `rows` wait until `until_ms` (0: unknown) for the reason `code`.

    Bundles with another obstacle keep that.
    """
    waiting = rows & eligible.mask
    numbers = eligible.codes.numbers.copy()
    numbers[waiting] = _CODES.index(code)
    ends = dict.fromkeys(np.flatnonzero(waiting).tolist(), until_ms) if until_ms else {}
    return replace(eligible, mask=numbers < 0, codes=Codes(numbers), frees_ms={**eligible.frees_ms, **ends})


def _traffic_sum(traffic: Floats) -> Floats:
    # Adding four columns is many times faster than `sum` over rows of four.
    total: Floats = traffic[:, 0] + traffic[:, 1] + traffic[:, 2] + traffic[:, 3]
    return total


def _single_bundle_codes(
    state: GuardState, params: Parameters, now_ms: int, in_books: frozenset[str], unsettled: frozenset[str]
) -> dict[str, Code]:
    codes = segment_codes(state, now_ms)
    codes.update(
        {
            name: Code.COOL_DOWN
            for name, moved in state.recent.items()
            if moved.at_ms > now_ms - rest_ms(state, params, name)
        }
    )
    codes.update({name: Code.PINNED for name, expiry in state.pinned.items() if not expiry or expiry > now_ms})
    codes.update(dict.fromkeys(unsettled, Code.UNSETTLED))
    codes.update(dict.fromkeys(in_books, Code.IN_TRANSIT))
    codes.update(dict.fromkeys(state.frozen, Code.FROZEN_INTENT))
    codes.update(dict.fromkeys(state.served_twice, Code.SERVED_TWICE))
    return codes


def completeness(snapshot: Snapshot, params: Parameters) -> Refusal | None:
    """Return None if enough brokers have a usable report, else a refusal that applies to all moves."""
    usable = len(snapshot.brokers)
    if snapshot.registered and usable / snapshot.registered >= params.min_complete_ratio:
        return None
    detail = (
        f"{usable} of {snapshot.registered} live brokers have a usable report, {params.min_complete_ratio:.0%} needed"
    )
    return Refusal(code=Code.INCOMPLETE_PICTURE, detail=detail)
