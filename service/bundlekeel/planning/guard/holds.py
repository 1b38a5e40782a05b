"""Holds: reasons of the whole cluster to move nothing, or to move bundles only off overloaded brokers.

During a rollout the brokers restart one at a time, and a bundle that moves meanwhile soon moves again. So only overload
is relieved until the rollout ends. If many brokers change at the same time, the snapshot may be wrong, and nothing
moves. Outside of maintenance windows, only overload is relieved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.model.text_format import clock_text
from bundlekeel.planning.guard.state import GuardState

# At most this many brokers are listed in a sentence; the others are counted.
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A reason to move bundles only off overloaded brokers, or with `everything` not at all, until `until_ms`.

    `until_ms` 0: the end is unknown.
    """

    code: Code
    sentence: str
    until_ms: int = 0
    everything: bool = False


def hold_of(snapshot: Snapshot, guard: GuardState, params: Parameters) -> Hold | None:
    """Return the strictest reason to move nothing, or only off overloaded brokers; None if everything may move."""
    return rollout_of(snapshot, guard, params) or _window(guard)


def rollout_of(snapshot: Snapshot, guard: GuardState, params: Parameters) -> Hold | None:
    """Return the hold because brokers started, stopped or restarted recently; None: no broker did."""
    return _blast(snapshot, guard, params) or _rollout(snapshot, guard, params)


def _blast(snapshot: Snapshot, guard: GuardState, params: Parameters) -> Hold | None:
    window = int(1000 * params.blast_window_seconds)
    changed = _changed_since(guard, snapshot.wall_ms - window)
    if not changed:
        return None
    brokers = {*snapshot.brokers.ids, *(item.broker_id for item in snapshot.excluded), *changed}
    for limit, everything in ((params.blast_stop_ratio, True), (params.blast_radius_ratio, False)):
        if len(changed) / len(brokers) <= limit:
            continue
        # The hold ends when enough changes are older than the window: the others are within the limit then.
        ends = sorted(guard.changed_brokers[broker] for broker in changed)
        until = ends[len(changed) - int(limit * len(brokers)) - 1] + window
        share = f"{len(changed)} of {len(brokers)} brokers started, stopped or restarted within {window / 1000:g} s"
        then = "nothing moves" if everything else "only overload is relieved"
        text = f"{share} ({_names(changed)}), more than {limit:.0%}: {then} until {clock_text(until)}"
        return Hold(code=Code.BLAST_RADIUS, sentence=text, until_ms=until, everything=everything)
    return None


def _rollout(snapshot: Snapshot, guard: GuardState, params: Parameters) -> Hold | None:
    quiet = int(1000 * params.rollout_quiet_seconds)
    until = max(guard.rolling_ms, *guard.changed_brokers.values(), 0) + quiet
    if until <= snapshot.wall_ms:
        return None
    # A drain in a roll-out can take longer than the quiet time. Then no broker has changed within it.
    brokers = _changed_since(guard, snapshot.wall_ms - quiet) or sorted(guard.draining)
    names = f" ({_names(brokers)})" if brokers else ""
    text = f"brokers are restarting{names}: only overload is relieved until {clock_text(until)}"
    return Hold(code=Code.ROLLOUT_HOLD, sentence=text, until_ms=until)


def _window(guard: GuardState) -> Hold | None:
    if guard.relief_until is None:
        return None
    until = f" until {clock_text(guard.relief_until)}" if guard.relief_until else ""
    text = f"the maintenance window allows no more than relief of overload{until}"
    return Hold(code=Code.OUTSIDE_WINDOW, sentence=text, until_ms=guard.relief_until)


def _changed_since(guard: GuardState, since_ms: int) -> list[str]:
    return sorted(broker for broker, at in guard.changed_brokers.items() if at > since_ms)


def _names(brokers: Sequence[str]) -> str:
    more = len(brokers) - _NAMED
    return ", ".join(brokers[:_NAMED]) + (f" and {more} more" if more > 0 else "")
