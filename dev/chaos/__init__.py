"""Fault tests: inject faults into a cluster with sidecars, record what independent observers see, and check it."""

from dev.chaos.history import Attempt, Disturbance, History, Intent, OperatorRequest, Record, Stop, Term, Violation
from dev.chaos.judging import judge
from dev.chaos.proxy import TcpProxy

__all__ = [
    "Attempt",
    "Disturbance",
    "History",
    "Intent",
    "OperatorRequest",
    "Record",
    "Stop",
    "TcpProxy",
    "Term",
    "Violation",
    "judge",
]
