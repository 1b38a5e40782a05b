"""Readings of one broker's counters, and how its load is known from them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from bundlekeel.model.agreement import Agreement
from bundlekeel.model.counters import CounterReading, MeasuredLoad
from bundlekeel.model.load import BrokerEndpoint, BrokerReport
from bundlekeel.pulsar.counters.cpu_signal import CpuSignal


@dataclass(slots=True, kw_only=True)
class BrokerCounters:
    """Readings of one broker's counters since its last start. Times in seconds are since the machine's boot."""

    endpoint: BrokerEndpoint
    since_ms: int = 0
    """Time at which this process noticed the broker's start, Unix ms; 0: the broker ran before this process."""
    reading: CounterReading | None = None
    loads: list[MeasuredLoad] = field(default_factory=list)
    """Loads measured in the last minutes (`PROCESS_SECONDS`), each between two consecutive readings."""
    load: MeasuredLoad | None = None
    agreement: Agreement = field(default_factory=Agreement)
    doubt: str = ""
    """Why the measured load is not used; "": it is used."""
    total: tuple[float, ...] = ()
    """The measured load, summed over all bundles."""
    topics_ms: int = 0
    """Last time at which the counters contained topics, Unix ms."""
    replacement: tuple[BrokerReport, MeasuredLoad, BrokerReport] | None = None
    """The last load report, the last measured load, and the report that combines both."""
    others: float = 0.0
    """Share of the CPU that processes other than the broker use."""
    read_at: float = float("-inf")
    """Start of the last reading, which took `took` seconds."""
    took: float = 0.0
    refused: str = ""
    """Why the broker returned no counters; "": it returned counters."""
    state: str = "waiting"
    """`live`: the measured load is used; otherwise why the broker's load report is used instead."""
    timely: float = 0.0
    """Last time at which `state` was not `outdated` (the counters are too old compared with the load report)."""
    task: asyncio.Task[None] | None = None
    quick_readings: int = 0
    """Number of readings in quick succession that are still to come."""
    signal: CpuSignal = field(default_factory=CpuSignal)
    """CPU use of the broker, from its CPU time in recent probes."""
    probe_at: float = 0.0
    probe_took: float = 0.0
    probe_failed: bool = False
    probe: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """Drop all readings: they are too old, because a load is measured between two recent readings."""
        self.reading, self.loads, self.load, self.agreement.loads = None, [], None, []
        self.signal, self.probe_failed = CpuSignal(), False
