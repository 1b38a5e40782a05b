"""Resource limits in load reports that cannot be true, because the broker uses more than they allow.

A cpuset without a quota, or a network card that reports 10 Mbit/s, leads to such a limit. A score computed with it is
meaningless, and more brokers would not help.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import CPU, RESOURCES
from bundlekeel.model.plan import Refusal, Verdict
from bundlekeel.model.snapshot import BrokerTable
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.strategies.common import Decision
from bundlekeel.planning.strategies.refusals import FULL

# By resource: its name, the unit of its limit, that unit in units of load reports, and the key in setting `capacity`.
_WORDS: Final = {
    "cpu": ("CPU", "cores", 100.0, "cores"),
    "direct_memory": ("direct memory", "MiB", 1.0, "direct_memory_mb"),
    "bandwidth_in": ("incoming bandwidth", "Gbit/s", 1e6, "nic_gbps"),
    "bandwidth_out": ("outgoing bandwidth", "Gbit/s", 1e6, "nic_gbps"),
}
# Verdicts of a cycle without moves that are wrong or useless if the load of a broker is unknown.
_HIDING: Final = FULL | {Code.ZERO_AVERAGE, Code.BALANCED}


class WrongLimit(NamedTuple):
    """A resource limit of a broker that must be wrong: usage is above it by more than a measurement error.

    `usage`, `limit`: in the unit of `resource` (`RESOURCES`).
    """

    broker: str
    resource: str
    usage: float
    limit: float

    @property
    def sentence(self) -> str:
        """Return the explanation for operators, with both values and the setting that fixes the limit."""
        name, unit, size, _ = _WORDS[self.resource]
        use = f"{self.broker} uses {self.usage / size:.4g} {unit} of {name}, and its limit is {self.limit / size:.4g}"
        return f"{use}: the limit is wrong and is ignored; {self.fix}"

    @property
    def fix(self) -> str:
        """Return the setting that fixes the limit, with the least possible value."""
        _, _, size, setting = _WORDS[self.resource]
        return f'set `capacity: {{"{self.broker}": {{{setting}: N}}}}`, where N is {self.usage / size:.4g} or more'


def wrong_limits(brokers: BrokerTable) -> list[WrongLimit]:
    """Return all limits in a snapshot that are ignored because they cannot be true, in the order of brokers."""
    return [
        WrongLimit(brokers.ids[row], RESOURCES[at], float(brokers.usage[row, at]), float(brokers.limit[row, at]))
        for row, at in np.argwhere(brokers.wrong()).tolist()
    ]


def explain_wrong_limits(decision: Decision, draft: Draft) -> None:
    """Add a refusal to the decision for each ignored limit, and let its verdicts name a wrong CPU limit.

    The load of a broker with a wrong CPU limit is unknown, so it accepts no bundle. If the other brokers are overloaded
    or balanced, the limit has to be fixed, because more brokers would not help.
    """
    if not draft.wrong.any():
        return
    limits = wrong_limits(draft.snapshot.brokers)
    unknown = {
        item.broker: item.sentence for item in limits if item.resource == RESOURCES[CPU] and draft.closes_wrong_cpu
    }
    if unknown:
        cause = next(iter(unknown.values()))
        decision.brokers = [
            Verdict(Code.WRONG_LIMIT, unknown[item.broker], item.broker) if item.broker in unknown else item
            for item in decision.brokers
        ]
        if not draft.moves and decision.verdict.code in _HIDING:
            decision.verdict = Verdict(Code.WRONG_LIMIT, cause)
        decision.refusals = [
            item._replace(code=Code.WRONG_LIMIT, detail=cause) if item.code in FULL else item
            for item in decision.refusals
        ]
    decision.refusals += [Refusal(Code.WRONG_LIMIT, broker=item.broker, detail=item.sentence) for item in limits]
