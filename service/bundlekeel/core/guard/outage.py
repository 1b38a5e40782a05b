"""When the metadata store was away, and for how long nothing may move after that. Pure: sights in, state out.

Two things count as an outage: the store did not answer for as long as our session lasts, and a registry of brokers that
shrank to less than half within `SHRINK_SECONDS` (many sessions ended at once). Afterwards the brokers come back one by
one, and the first ones own nearly everything; moves planned then would move bundles that are about to return. So the
registry has to be complete, and unchanged for `settle` seconds. Brokers that are still missing after `PATIENCE_FACTOR`
times that long count as gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

SHRINK_SECONDS = 30.0
PATIENCE_FACTOR = 4.0

Registration = tuple[str, int]
"""A broker's id and when its process started, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSight:
    """One look at the store. `boot`: seconds on the boot clock. `brokers`: registrations, None when they are not known
    at this moment. `session_seconds`: how long our session lasts, as negotiated."""

    boot: float
    answered: bool
    session_seconds: float
    brokers: frozenset[Registration] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage that is not settled yet. `expected`: the brokers that were there before. `back`: when the store
    answered again (boot seconds), None while it is away."""

    why: str
    since: float
    expected: frozenset[str] = frozenset()
    back: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageMemory:
    """What one sidecar has seen so far. All times are boot seconds.

    `seen`: the last look. `away`: seconds without an answer, counted by looks. `calm_since`: since when nothing was
    wrong. `changed`: when the registry changed last. `recent`: the registry's sizes of the last moments.
    """

    seen: float
    calm_since: float
    changed: float
    away: float = 0.0
    registered: frozenset[Registration] | None = None
    recent: tuple[tuple[float, frozenset[str]], ...] = ()
    outage: Outage | None = None

    @property
    def missing(self) -> frozenset[str]:
        """Brokers that were there before the outage and are not now."""
        if self.outage is None:
            return frozenset()
        return self.outage.expected - _ids(self.registered or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleRules:
    """`seconds`: how long the registry must be quiet. `step`: the longest time between two looks that counts: a process
    that was stopped for a while does not know whether the store answered meanwhile."""

    seconds: float = 180.0
    step: float = 5.0

    @property
    def patience(self) -> float:
        """How long missing brokers are waited for."""
        return PATIENCE_FACTOR * self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleWait:
    """What is still waited for: brokers, and for how many more seconds at least."""

    why: str
    away: bool
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    quiet: float = 0.0


def begin(boot: float) -> OutageMemory:
    """Nothing seen yet. Nothing is held against a store that answers at once: a fail-over must not wait."""
    return OutageMemory(seen=boot, calm_since=boot, changed=boot)


def advance(state: OutageMemory, sight: StoreSight, settle: SettleRules) -> OutageMemory:
    """The state after one more look."""
    gap = min(max(0.0, sight.boot - state.seen), settle.step)
    state = replace(state, seen=sight.boot)
    if not sight.answered:
        return _away(state, gap, sight)
    outage = state.outage
    if outage is not None and outage.back is None:
        outage = replace(outage, back=sight.boot)
        state = replace(state, changed=sight.boot)
    state = replace(state, away=0.0, outage=outage)
    if sight.brokers is not None:
        state = _registry(state, sight.brokers, sight.boot)
    return _settled(state, settle)


def noticed(state: OutageMemory, brokers: frozenset[Registration], boot: float, settle: SettleRules) -> OutageMemory:
    """The state after a look at the registry alone, which says nothing of whether the store still answers."""
    if state.outage is not None and state.outage.back is None:
        return state
    return _settled(_registry(state, brokers, boot), settle)


def remember(state: OutageMemory, brokers: Iterable[str], boot: float) -> OutageMemory:
    """Brokers that somebody else saw registered a moment ago: a registry of less than half of them has shrunk."""
    known = frozenset(brokers)
    if not known:
        return state
    if state.outage is not None:
        return replace(state, outage=replace(state.outage, expected=state.outage.expected | known))
    return replace(state, recent=(*state.recent, (boot, known)))


def join(state: OutageMemory, outage: Outage) -> OutageMemory:
    """An outage that somebody else saw; added to our own when we saw one as well."""
    if state.outage is None:
        return replace(state, outage=outage)
    return replace(state, outage=replace(state.outage, expected=state.outage.expected | outage.expected))


def leave(state: OutageMemory, boot: float) -> OutageMemory:
    """The outage is over: who leads saw the store all the while, or has seen it settle."""
    return replace(state, outage=None, calm_since=boot) if state.outage is not None else state


def waiting(state: OutageMemory, settle: SettleRules) -> SettleWait | None:
    """What has to happen before anything may move; None: nothing."""
    outage = state.outage
    if outage is None:
        return None
    if outage.back is None:
        return SettleWait(why=outage.why, away=True, seconds=settle.seconds)
    quiet = max(0.0, state.seen - max(state.changed, outage.back))
    left, missing = max(0.0, settle.seconds - quiet), state.missing
    if missing:
        left = max(left, settle.patience - (state.seen - outage.back))
    return SettleWait(why=outage.why, away=False, missing=tuple(sorted(missing)), seconds=left, quiet=quiet)


def _away(state: OutageMemory, gap: float, sight: StoreSight) -> OutageMemory:
    away = state.away + gap
    state = replace(state, away=away)
    if state.outage is not None and state.outage.back is not None:
        # What is not seen is not quiet: these seconds do not count.
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
    recent = tuple((at, seen) for at, seen in state.recent if boot - at <= SHRINK_SECONDS)
    state = replace(state, recent=recent)
    most = max((seen for _, seen in recent), key=len, default=frozenset[str]())
    if state.outage is None and 2 * len(ids) < len(most):
        gone = len(most) - len(ids)
        why = f"{gone} of {len(most)} brokers left the registry at once"
        return replace(state, outage=Outage(why=why, since=boot, expected=most, back=boot), changed=boot)
    return state


def _settled(state: OutageMemory, settle: SettleRules) -> OutageMemory:
    left = waiting(state, settle)
    if left is None or state.registered is None or left.seconds > 0:
        return state
    return replace(state, outage=None, calm_since=state.seen, recent=())


def _ids(brokers: Iterable[Registration]) -> frozenset[str]:
    return frozenset(broker for broker, _ in brokers)
