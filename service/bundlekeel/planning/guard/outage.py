"""Detect outages of the metadata store, and decide how long nothing may move after an outage. Pure.

There is an outage if the store does not respond for as long as Bundlekeel's session lasts. There is also one if the
number of registered brokers falls to less than half within `SHRINK_SECONDS`: many sessions ended together. Afterwards
the brokers return one at a time, and the first ones own nearly all bundles. Moves planned then would move bundles that
are about to return. So all brokers must be registered, without a change for `SettleRules.seconds`. Bundlekeel waits for
missing brokers at most `PATIENCE_FACTOR` times as long. Times are seconds since the machine's boot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

SHRINK_SECONDS = 30.0
PATIENCE_FACTOR = 4.0

Registration = tuple[str, int]
"""A broker's id and the start time of its process, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSight:
    """Result of one check of the metadata store.

    `boot`: time of the check, seconds since the machine's boot. `answered`: whether the store responded. `brokers`:
    registered brokers, None if unknown. `session_seconds`: negotiated length of Bundlekeel's session.
    """

    boot: float
    answered: bool
    session_seconds: float
    brokers: frozenset[Registration] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage of the metadata store after which nothing may move yet.

    `since`: its start, seconds since the machine's boot. `expected`: brokers that were registered before. `back`: when
    the store responded again; None while it does not respond.
    """

    why: str
    since: float
    expected: frozenset[str] = frozenset()
    back: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageMemory:
    """What one sidecar remembers to detect outages of the metadata store. Times are seconds since the machine's boot.

    `checked`: time of the last check. `away`: seconds without a response of the store, since its last response.
    `calm_since`: end of the last outage, or start of the sidecar. `changed`: time at which the set of registered
    brokers last changed. `recent`: earlier sets of registered brokers within `SHRINK_SECONDS`.
    """

    checked: float
    calm_since: float
    changed: float
    away: float = 0.0
    registered: frozenset[Registration] | None = None
    recent: tuple[tuple[float, frozenset[str]], ...] = ()
    outage: Outage | None = None

    @property
    def missing(self) -> frozenset[str]:
        """Return the brokers that were registered before the outage and have not registered again."""
        if self.outage is None:
            return frozenset()
        return self.outage.expected - _ids(self.registered or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleRules:
    """Rules for the wait after an outage of the metadata store.

    `seconds`: the set of registered brokers must be unchanged for this long. `step`: if more seconds lie between two
    checks, only this many count as time without a response, because a process that was stopped cannot tell whether the
    store responded meanwhile.
    """

    seconds: float = 180.0
    step: float = 5.0

    @property
    def patience(self) -> float:
        """Return how long Bundlekeel waits for brokers that have not registered again, in seconds."""
        return PATIENCE_FACTOR * self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleWait:
    """Reason and remaining time of the wait after an outage of the metadata store, in which nothing moves.

    `away`: the store does not respond. `missing`: brokers that have not registered again. `seconds`: least remaining
    time. `quiet`: seconds since the set of registered brokers last changed.
    """

    why: str
    away: bool
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    quiet: float = 0.0


def begin(boot: float) -> OutageMemory:
    """Return the state before the first check of the store. It contains no outage, so a new leader does not wait."""
    return OutageMemory(checked=boot, calm_since=boot, changed=boot)


def advance(state: OutageMemory, sight: StoreSight, settle: SettleRules) -> OutageMemory:
    """Return the state after one more check of the store. `sight`: result of the check."""
    gap = min(max(0.0, sight.boot - state.checked), settle.step)
    state = replace(state, checked=sight.boot)
    if not sight.answered:
        return _count_silence(state, gap, sight)
    outage = state.outage
    if outage is not None and outage.back is None:
        outage = replace(outage, back=sight.boot)
        state = replace(state, changed=sight.boot)
    state = replace(state, away=0.0, outage=outage)
    if sight.brokers is not None:
        state = _registry(state, sight.brokers, sight.boot)
    return _settled(state, settle)


def noticed(state: OutageMemory, brokers: frozenset[Registration], boot: float, settle: SettleRules) -> OutageMemory:
    """Return the state after a change of the registered brokers, seen between two checks of the store.

    Such a change does not prove that the store still responds.
    """
    if state.outage is not None and state.outage.back is None:
        return state
    return _settled(_registry(state, brokers, boot), settle)


def remember(state: OutageMemory, brokers: Iterable[str], boot: float) -> OutageMemory:
    """Add brokers that another sidecar saw. It is an outage if fewer than half of them are registered now."""
    ids = frozenset(brokers)
    if not ids:
        return state
    if state.outage is not None:
        return replace(state, outage=replace(state.outage, expected=state.outage.expected | ids))
    return replace(state, recent=(*state.recent, (boot, ids)))


def join(state: OutageMemory, outage: Outage) -> OutageMemory:
    """Add an outage of the store that another sidecar saw.

    If this sidecar saw an outage itself, only the brokers that must register again are added.
    """
    if state.outage is None:
        return replace(state, outage=outage)
    return replace(state, outage=replace(state.outage, expected=state.outage.expected | outage.expected))


def leave(state: OutageMemory, boot: float) -> OutageMemory:
    """End the outage, because the leader saw no interruption of the store, or has already waited long enough."""
    return replace(state, outage=None, calm_since=boot) if state.outage is not None else state


def waiting(state: OutageMemory, settle: SettleRules) -> SettleWait | None:
    """Return why and how long the next move must wait after an outage; None if it need not."""
    outage = state.outage
    if outage is None:
        return None
    if outage.back is None:
        return SettleWait(why=outage.why, away=True, seconds=settle.seconds)
    quiet = max(0.0, state.checked - max(state.changed, outage.back))
    left, missing = max(0.0, settle.seconds - quiet), state.missing
    if missing:
        left = max(left, settle.patience - (state.checked - outage.back))
    return SettleWait(why=outage.why, away=False, missing=tuple(sorted(missing)), seconds=left, quiet=quiet)


def _count_silence(state: OutageMemory, gap: float, sight: StoreSight) -> OutageMemory:
    away = state.away + gap
    state = replace(state, away=away)
    if state.outage is not None and state.outage.back is not None:
        # The registry is not visible meanwhile, so these seconds do not count as unchanged.
        state = replace(state, changed=max(state.changed, state.outage.back) + gap)
    if sight.session_seconds <= 0 or away < sight.session_seconds:
        return state
    expected = state.outage.expected if state.outage is not None else _ids(state.registered or ())
    why = f"the metadata store did not answer for {away:.0f} s"
    return replace(state, outage=Outage(why=why, since=sight.boot - away, expected=expected))


def _registry(state: OutageMemory, brokers: frozenset[Registration], boot: float) -> OutageMemory:
    ids = _ids(brokers)
    if brokers != state.registered:
        before = () if state.registered is None else ((boot, _ids(state.registered)),)
        state = replace(state, registered=brokers, changed=boot, recent=(*state.recent, *before))
    recent = tuple((at, brokers_then) for at, brokers_then in state.recent if boot - at <= SHRINK_SECONDS)
    state = replace(state, recent=recent)
    most = max((brokers_then for _, brokers_then in recent), key=len, default=frozenset[str]())
    if state.outage is None and 2 * len(ids) < len(most):
        lost = len(most) - len(ids)
        why = f"{lost} of {len(most)} brokers left the registry at once"
        return replace(state, outage=Outage(why=why, since=boot, expected=most, back=boot), changed=boot)
    return state


def _settled(state: OutageMemory, settle: SettleRules) -> OutageMemory:
    left = waiting(state, settle)
    if left is None or state.registered is None or left.seconds > 0:
        return state
    return replace(state, outage=None, calm_since=state.checked, recent=())


def _ids(brokers: Iterable[Registration]) -> frozenset[str]:
    return frozenset(broker for broker, _ in brokers)
