"""Fault tests: inject faults into a cluster with sidecars, record what independent observers see, and check it."""

from tests.support.chaos.history import (
    Attempt,
    Disturbance,
    History,
    Intent,
    OperatorRequest,
    Record,
    Stop,
    Term,
    Violation,
)
from tests.support.chaos.judging import judge
from tests.support.chaos.proxy import TcpProxy

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
