"""Faults on purpose, what happened meanwhile as independent witnesses saw it, and the judgement of that history."""

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
