"""Rules to compare with: PIP-82 as proposed, Pulsar 4.2's ResourceGroups, and a fixed quota for each bundle.

All of them give limits to brokers (or bundles), not to topics. Sources: the PIP-82 thread and its reply by Penghui Li;
Pulsar `ResourceQuotaCalculatorImpl`, `ResourceGroup` (facts of our notes, section 8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

EQUAL, PROPORTIONAL = "equal", "proportional"
# Java's long: the quota is cut to a whole number, and is at least 1.
_LEAST: Final = 1.0


def divide_rest(quota: float, usage: Mapping[str, float], rest: str = PROPORTIONAL) -> dict[str, float]:
    """Local limits of PIP-82 without stealing: usage plus the quota's unused rest.

    `equal`: everybody may use the whole rest (the sum exceeds the quota for a moment: 10/50/30 of 100 become
    20/60/40). `proportional`: a part in proportion to usage (11.11/55.56/33.33). Over the quota both cut in
    proportion. Who reports 0 takes no part; with nobody left there is nothing to say.
    """
    active = {name: used for name, used in sorted(usage.items()) if used > 0}
    total = math.fsum(active.values())
    left = quota - total
    if left > 0 and rest == EQUAL:
        return {name: used + left for name, used in active.items()}
    return {name: used + left * used / total for name, used in active.items()}


def steal(limits: Mapping[str, float], usage: Mapping[str, float]) -> dict[str, float]:
    """PIP-82's stealing: the lowest user may go half-way to the most dominant one, the second lowest half-way to the
    second most dominant, and so on (80/20: the second probes at 50). Nobody's limit falls."""
    order = sorted((used, name) for name, used in usage.items() if used > 0)
    found = dict(limits)
    for (low, name), (high, _) in zip(order[: len(order) // 2], reversed(order), strict=False):
        found[name] = max(found[name], low + (high - low) / 2)
    return found


def pip82(quota: float, usage: Mapping[str, float], rest: str = PROPORTIONAL) -> dict[str, float]:
    """One step of PIP-82 as proposed: rest divided or excess cut, then stealing. Sums may exceed the quota."""
    return steal(divide_rest(quota, usage, rest), usage)


def native(quota: float, usage: Mapping[str, float], broker: str) -> float:
    """The publish limit that Pulsar 4.2's ResourceGroup gives one broker, from the usages it heard of, its own too.

    Purely proportional, cut to a whole number, at least 1: a broker that has just received a bundle has no usage yet
    and gets 1 message and 1 byte a second. Usages of dead brokers stay in `usage` until a broker restarts.
    """
    if quota < 0:
        return -1.0
    total = math.fsum(usage.values())
    if total == 0:
        return quota
    mine = usage.get(broker, 0.0)
    return float(math.floor(max(mine + (quota - total) * mine / total, _LEAST)))


def per_bundle(quota: float, bundles: int) -> float:
    """What each bundle may pass when the quota is fixed to bundles: no exchange, and idle bundles waste their part.

    Raises ValueError without bundles.
    """
    if bundles < 1:
        raise ValueError("a namespace has at least one bundle")
    return quota / bundles
