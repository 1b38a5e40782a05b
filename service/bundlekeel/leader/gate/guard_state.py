"""State of the guard (the limits on moves): what happened in earlier cycles, and the maintenance windows.

Every replica maintains this state, because followers plan as well. Moves of the last hour come from the shared records,
and restarts of brokers also from the leader's state: a sidecar that restarts with its broker must know earlier ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Reversible
from dataclasses import replace
from typing import Any, Final

from bundlekeel.leader.gate.windows import Calendar
from bundlekeel.leader.state.cycle_state import BrokerChanges
from bundlekeel.model.names import namespace_of
from bundlekeel.model.text_format import HOUR_MS
from bundlekeel.planning.guard.state import BegunMove, GuardState
from bundlekeel.planning.ledger import Ledger
from bundlekeel.ports import RawClusterView

# Changes of brokers are dropped after this time, which is longer than any window of the guard.
KEPT_MS: Final = 24 * HOUR_MS
# A drain or an absent broker prolongs a roll-out for at most this many quiet times after its last progress.
PATIENCE: Final = 10
# Longest duration of a move. Records are in the order in which moves ended, so a search for starts goes back further.
LONGEST_MS: Final = HOUR_MS


def list_moved_brokers(moves: Reversible[Mapping[str, Any]], since_ms: int) -> set[str]:
    """Return the sources and targets of moves that ended since `since_ms`. `moves`: move records, oldest first."""
    brokers: set[str] = set()
    for record in reversed(moves):
        ended = int(record.get("landed_ms") or record.get("started_ms") or 0)
        if ended < since_ms - LONGEST_MS:
            break
        if ended >= since_ms and record.get("outcome") != "refused":
            brokers |= {str(record.get("source", "")), str(record.get("landed_on") or record.get("destination", ""))}
    return brokers


class GuardMemory:
    """What the guard (the limits on moves) remembers in one sidecar, in addition to the cycle's state.

    Use it on the event loop only."""

    def __init__(
        self,
        moves: Callable[[], Reversible[Mapping[str, Any]]],
        calendar: Calendar | None = None,
        rate: Callable[[], int | None] = lambda: None,
        limited: Callable[[frozenset[str]], frozenset[str]] = lambda _: frozenset(),
    ) -> None:
        """Create an empty memory.

        Args:
            moves: Returns the shared records of moves, oldest first (leader/state/shared_state.py).
            rate: Returns the number of moves per cycle that the adaptive rate allows; None: no limit.
            limited: Returns those of the passed namespaces whose rates a quota group limits."""
        self._moves = moves
        self._rate = rate
        self._calendar = calendar or Calendar()
        self.limited = limited
        self._since_ms = 0
        # Start of each registered broker's process; None: no snapshot yet. `_ever`: all brokers ever registered.
        self._here: dict[str, int] | None = None
        self._ever: set[str] = set()
        self.changed: dict[str, int] = {}
        # Last time of a roll-out. Changes up to `_rolled_ms` belong to roll-outs that have ended.
        self._rolling_ms = self._rolled_ms = 0
        # By draining broker: the lowest number of its bundles so far (-1: not registered), and the time at which it was
        # reached. An increase is not progress: Pulsar places new bundles there, and they leave again.
        self._drains: dict[str, tuple[float, int]] = {}

    def see(
        self,
        picture: RawClusterView,
        now_ms: int,
        drains: Collection[str] = (),
        quiet_seconds: float = 0.0,
        *,
        known: BrokerChanges | None = None,
    ) -> None:
        """Compare a snapshot with the previous one, and record which brokers joined, left or restarted.

        `known`: the changes that the leader has recorded; read with the first snapshot of this replica.
        A roll-out ends after `quiet_seconds` without a change (`rollout_quiet_seconds`; 0: no roll-outs). A drain
        (`drains`: the drained brokers) that begins earlier prolongs the roll-out until the drained broker is back."""
        here = {broker: endpoint.start_timestamp for broker, endpoint in picture.endpoints.items()}
        if self._here is None:
            self._since_ms = now_ms
            if known is not None:
                self.changed = dict(known.changed_ms)
                self._rolling_ms, self._rolled_ms = known.rolling_ms, known.rolled_ms
        else:
            started = {report.broker_id: report.started_ms for report in picture.reports}
            for broker in self._differing(self._here, here, {**here, **started}):
                self.changed[broker] = now_ms
        self._ever |= here.keys()
        # An unreadable record has no start: keep the previous one.
        self._here = {broker: start or (self._here or {}).get(broker, 0) for broker, start in here.items()}
        self.changed = {broker: at for broker, at in self.changed.items() if at > now_ms - KEPT_MS}
        self._prolong(picture, now_ms, drains, int(1000 * quiet_seconds))

    def _prolong(self, picture: RawClusterView, now_ms: int, drains: Collection[str], quiet_ms: int) -> None:
        """Update the last time of the roll-out: the last change of a broker, or now during a drain with progress."""
        reported = {report.broker_id: len(report.bundle_names) for report in picture.reports}
        counts = {broker: reported.get(broker, math.inf) if broker in picture.endpoints else -1 for broker in drains}
        self._drains = {
            broker: kept if (kept := self._drains.get(broker)) and kept[0] <= count else (count, now_ms)
            for broker, count in counts.items()
        }
        self._rolling_ms = max(self._rolling_ms, *self.changed.values(), 0)
        progress = max((since for _, since in self._drains.values()), default=0)
        if self._rolling_ms > now_ms - quiet_ms and progress > now_ms - PATIENCE * quiet_ms:
            self._rolling_ms = now_ms

    def _differing(self, before: Mapping[str, int], here: Mapping[str, int], started: Mapping[str, int]) -> list[str]:
        """Return the brokers that left, joined or restarted since `before`.

        `before`, `here`: start timestamps in the registry. `started`: start times by the local clock, if known."""
        brokers = [broker for broker in before if broker not in here]
        for broker, start in here.items():
            was = before.get(broker)
            if was is None:
                # A broker that started before this sidecar's first snapshot is not a change.
                if broker in self._ever or started[broker] >= self._since_ms or start == 0:
                    brokers.append(broker)
            elif start and was and start != was:
                brokers.append(broker)
        return brokers

    @property
    def changes(self) -> BrokerChanges:
        """The changes of brokers, for sidecars that start later."""
        return BrokerChanges(changed_ms=dict(self.changed), rolling_ms=self._rolling_ms, rolled_ms=self._rolled_ms)

    def state(self, state: GuardState, ledger: Ledger, now_ms: int) -> GuardState:
        """Return the guard's state with the last hour's moves, changed brokers, windows, and rate-limited bundles."""
        return replace(
            state,
            last_hour=self._last_hour(ledger, now_ms),
            changed_brokers=dict(self.changed),
            rolling_ms=self._rolling_ms,
            relief_until=self._calendar.relief_until(now_ms),
            rate=self._rate(),
            limited=self._limited(state.recent),
        )

    def _limited(self, bundles: Iterable[str]) -> frozenset[str]:
        spaces = {bundle: namespace_of(bundle) for bundle in bundles}
        limited = self.limited(frozenset(spaces.values())) if spaces else frozenset()
        return frozenset(bundle for bundle, space in spaces.items() if space in limited)

    def rolled_out(self, now_ms: int, quiet_seconds: float) -> frozenset[str]:
        """Return the registered brokers that joined or restarted in a roll-out that has ended; report each broker once.

        Every replica calls this in every cycle, so a new leader does not report an old roll-out again."""
        latest = self._rolling_ms
        if not quiet_seconds or latest <= self._rolled_ms or latest > now_ms - int(1000 * quiet_seconds):
            return frozenset()
        since, self._rolled_ms = self._rolled_ms, latest
        return frozenset(broker for broker in self._here or {} if self.changed.get(broker, 0) > since)

    def _last_hour(self, ledger: Ledger, now_ms: int) -> tuple[BegunMove, ...]:
        """Return the moves that started within the last hour, oldest first, finished or in progress."""
        until = now_ms - HOUR_MS
        moves: dict[tuple[str, int], BegunMove] = {}
        for record in reversed(self._moves()):
            started = int(record.get("started_ms") or 0)
            if started <= until - LONGEST_MS:
                break
            if started <= until or record.get("outcome") == "refused":
                continue
            move = BegunMove(
                bundle=str(record.get("bundle", "")),
                source=str(record.get("source", "")),
                target=str(record.get("destination", "")),
                at_ms=started,
            )
            moves[move.bundle, started] = move
        for entry in ledger.entries:
            if not entry.landed_ms and entry.opened_ms > until:
                move = BegunMove(bundle=entry.bundle, source=entry.source, target=entry.target, at_ms=entry.opened_ms)
                moves.setdefault((entry.bundle, entry.opened_ms), move)
        return tuple(sorted(moves.values(), key=lambda item: (item.at_ms, item.bundle)))
