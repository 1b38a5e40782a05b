"""The newest results of the cycles.

They are in a separate object, because the gate, the adaptive rate, quotas and calibration read them and are created
before the cycle, which needs these parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bundlekeel.leader.cycle.report import CycleReport
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.ports import RawClusterView


@dataclass(slots=True, eq=False)
class CycleStatus:
    """State, snapshot, report and parameters of the last cycle. Only the cycle writes them.

    `no_seat`: returns why this sidecar does not watch the cluster, "" if it does (leader/state/leadership.py).
    """

    params: Parameters
    no_seat: Callable[[], str] = str
    state: CycleState = field(default_factory=CycleState)
    snapshot: Snapshot | None = None
    picture: RawClusterView | None = None
    report: CycleReport | None = None

    @property
    def no_picture(self) -> str:
        """Return why there is no snapshot of the cluster and what to do; "" if there is a snapshot."""
        if self.snapshot is not None:
            return ""
        if self.report is not None and self.report.code is Code.STORE_MIGRATED:
            return self.report.sentence
        return self.no_seat() or "the cluster has not been read yet; try again in a few seconds"
