"""The adaptive rate: a limit on moves per cycle, by latency and errors of the brokers' clients. Pure.

It uses additive increase and multiplicative decrease, as congestion control does. If the source or target of a move has
publish latency, failures, failed lookups or new connections clearly above its usual values, the moves per cycle are
halved. Each check without such a broker allows one more move, until there is no limit. The usual values are averages,
kept per broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

# Clearly above means: above this multiple of the usual value, and above the usual value plus the slack below.
WORSE_RATIO: Final = 3.0
LATENCY_SLACK_MS: Final = 20.0
FAILURES_SLACK: Final = 0.2
CONNECTIONS_SLACK: Final = 5.0
# Weight of the newest value in the usual value.
NEWEST: Final = 0.2
INCREASE: Final = 1.0
LOWEST: Final = 1.0
# No rate is computed from two counter readings that are further apart than this.
STALE_MS: Final = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSigns:
    """Latency and errors of a broker's clients.

    `latency_ms`: mean time to store a message; None: no message is published. The other values are counters since the
    broker's start. `failures`: topics that failed to load, plus refused connections. `connections`: opened connections.
    `lookups_failed`: None if the broker does not report it.
    """

    latency_ms: float | None = None
    failures: int = 0
    connections: int = 0
    lookups_failed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualSigns:
    """Usual values of one broker: latency in ms; failures, new connections and failed lookups per second."""

    latency_ms: float | None = None
    failures: float = 0.0
    connections: float = 0.0
    lookups_failed: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMemory:
    """State of the adaptive rate (a limit on moves per cycle by latency and errors of clients).

    `allowed`: moves per cycle; None: no limit. `reason`: reason for the last decrease, as text for operators. `last`:
    last values of each broker, with the time (ms). `usual`: usual values of each broker.
    """

    allowed: float | None = None
    reason: str = ""
    last: Mapping[str, tuple[int, ClientSigns]] = field(default_factory=dict)
    usual: Mapping[str, UsualSigns] = field(default_factory=dict)

    @property
    def moves(self) -> int | None:
        """Return how many moves per cycle the rate allows; None: no limit."""
        return None if self.allowed is None else int(self.allowed)


def advance(
    memory: RateMemory,
    signs: Mapping[str, ClientSigns],
    concerned: Collection[str],
    *,
    ceiling: int,
    now_ms: int,
    unread: Collection[str] = (),
) -> RateMemory:
    """Return the state after one check of the clients' latency and errors.

    `signs`: new values by broker. `concerned`: sources and targets of moves since the last check; only they show the
    effect of moves. `ceiling`: limit on moves per cycle without the adaptive rate. `unread`: concerned brokers without
    recent metrics. Moves could harm their clients unnoticed, so they halve the rate.
    """
    usual, last = dict(memory.usual), dict(memory.last)
    reasons = [f"{broker}: its metrics cannot be read" for broker in sorted(unread)]
    for broker in sorted(signs):
        now = _rates(last.get(broker), signs[broker], now_ms)
        last[broker] = now_ms, signs[broker]
        if now is None:
            continue
        why = _worse(now, usual[broker]) if broker in usual and broker in concerned else ""
        if why:
            reasons.append(f"{broker}: {why}")
        else:
            usual[broker] = _learnt(usual.get(broker), now)
    changed = replace(memory, usual=usual, last=last)
    if reasons:
        before = memory.allowed if memory.allowed is not None else float(ceiling)
        return replace(changed, allowed=max(LOWEST, min(before, ceiling) / 2), reason=reasons[0])
    if memory.allowed is None:
        return changed
    more = memory.allowed + INCREASE
    return replace(changed, allowed=None, reason="") if more >= ceiling else replace(changed, allowed=more)


def without(memory: RateMemory, departed: Collection[str]) -> RateMemory:
    """Return the state without brokers that have left the cluster."""
    return replace(
        memory,
        last={broker: item for broker, item in memory.last.items() if broker not in departed},
        usual={broker: item for broker, item in memory.usual.items() if broker not in departed},
    )


def _rates(before: tuple[int, ClientSigns] | None, now: ClientSigns, now_ms: int) -> UsualSigns | None:
    """Return the values of a broker per second since the last check.

    None without a recent check, or if the broker has restarted since.
    """
    if before is None:
        return None
    seconds = (now_ms - before[0]) / 1000
    failures, connections = now.failures - before[1].failures, now.connections - before[1].connections
    if not 0 < seconds <= STALE_MS / 1000 or failures < 0 or connections < 0:
        return None
    return UsualSigns(
        latency_ms=now.latency_ms,
        failures=failures / seconds,
        connections=connections / seconds,
        lookups_failed=_rate(before[1].lookups_failed, now.lookups_failed, seconds),
    )


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    return None if before is None or now is None or now < before else (now - before) / seconds


def _worse(now: UsualSigns, usual: UsualSigns) -> str:
    """Describe the first value of a broker that is clearly above its usual value; "": there is no such value."""
    latency, common = now.latency_ms, usual.latency_ms
    if latency is not None and common is not None and _above(latency, common, LATENCY_SLACK_MS):
        return f"publish latency {latency:.0f} ms, usually {common:.0f} ms"
    if _above(now.failures, usual.failures, FAILURES_SLACK):
        return f"{now.failures:.1f} failed loads and connections a second, usually {usual.failures:.1f}"
    lookups, before = now.lookups_failed, usual.lookups_failed
    if lookups is not None and before is not None and _above(lookups, before, FAILURES_SLACK):
        return f"{lookups:.1f} failed lookups a second, usually {before:.1f}"
    if _above(now.connections, usual.connections, CONNECTIONS_SLACK):
        return f"{now.connections:.0f} new connections a second, usually {usual.connections:.0f}"
    return ""


def _above(now: float, usual: float, slack: float) -> bool:
    return now > WORSE_RATIO * usual and now > usual + slack


def _learnt(usual: UsualSigns | None, now: UsualSigns) -> UsualSigns:
    if usual is None:
        return now
    return UsualSigns(
        latency_ms=_mixed_if_told(usual.latency_ms, now.latency_ms),
        failures=_mixed(usual.failures, now.failures),
        connections=_mixed(usual.connections, now.connections),
        lookups_failed=_mixed_if_told(usual.lookups_failed, now.lookups_failed),
    )


def _mixed_if_told(usual: float | None, now: float | None) -> float | None:
    if usual is None or now is None:
        return now if usual is None else usual
    return _mixed(usual, now)


def _mixed(usual: float, now: float) -> float:
    return usual * (1 - NEWEST) + now * NEWEST
