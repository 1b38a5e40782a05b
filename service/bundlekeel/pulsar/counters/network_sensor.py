"""Notices a change of a broker's traffic within two seconds, in the sidecar that shares the broker's pod.

The containers of a pod have the same network interfaces. The kernel counts their bytes, so reading the counters costs
the broker nothing. The leader learns only that there is a change, and then reads the brokers' own counters.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import structlog

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import integer
from bundlekeel.ports import Clock

_log = structlog.get_logger(__name__)

READ_SECONDS: Final = 1.0
# A change is a rate that leaves the range of earlier rates by more than this share of the usual maximum.
CHANGED_SHARE: Final = 0.1
# Ignore smaller changes, in bytes per second. Pulsar compares the throughput of bundles in steps of this size, too.
LEAST_BYTES: Final = 100_000.0
# The earlier rates include a scrape of Prometheus, which comes once per minute by default.
_VALUES: Final = 90
# With fewer rates, none counts as a change.
_LEAST_VALUES: Final = 10
_LOOPBACK: Final = "lo"
_MOST_CHARACTERS: Final = 64 * 1024
# Columns of /proc/net/dev after the name of the interface: received and sent bytes.
_RECEIVED, _SENT, _COLUMNS = 0, 8, 16


@dataclass(slots=True)
class TrafficRange:
    """Rates of a pod's network interfaces, in bytes per second, oldest first: one for each pair of readings."""

    rates: deque[float] = field(default_factory=lambda: deque(maxlen=_VALUES))
    before: tuple[float, dict[str, int]] | None = None
    """Time (seconds) and counters of the last reading; None: the next reading only starts a measurement."""

    def add(self, at: float, counters: dict[str, int]) -> bool:
        """Add a reading of the counters, by interface. Return whether the last two rates are a change.

        Two, because a page of metrics or a pause of the JVM looks like a change for a second. For the same reason, each
        two neighbours among the earlier rates count together. A reading starts a new measurement if interfaces were
        added or removed, or if a counter is smaller than before."""
        before, self.before = self.before, (at, counters)
        if before is None or at <= before[0] or counters.keys() != before[1].keys():
            return False
        sent = {name: counters[name] - before[1][name] for name in counters}
        if any(number < 0 for number in sent.values()):
            return False
        self.rates.append(sum(sent.values()) / (at - before[0]))
        rates = list(self.rates)
        if len(rates) < _LEAST_VALUES:
            return False
        lowest, highest = min(rates[-2:]), max(rates[-2:])
        most = max(min(pair) for pair in pairwise(rates[:-2]))
        least = min(max(pair) for pair in pairwise(rates[:-2]))
        return max(lowest - most, least - highest) > max(LEAST_BYTES, CHANGED_SHARE * most)


def read_counters(path: Path) -> dict[str, int]:
    """Return the received and sent bytes of each network interface except loopback, from a file like /proc/net/dev.

    Raises OSError or CodecError if the file cannot be read or has another format."""
    if not path.is_file():
        raise OSError("there is no such regular file")
    with path.open(encoding="ascii", errors="replace") as file:
        text = file.read(_MOST_CHARACTERS)
    counters = {}
    for line in text.splitlines()[2:]:
        name, colon, rest = line.partition(":")
        columns = rest.split()
        if not colon or len(columns) < _COLUMNS:
            fault = f"{line!r} is not a line of /proc/net/dev: expected a name, a colon and {_COLUMNS} numbers"
            raise CodecError(fault, code=Code.WRONG_TYPE)
        counters[name.strip()] = sum(integer(columns[place], field=name.strip()) for place in (_RECEIVED, _SENT))
    counters.pop(_LOOPBACK, None)
    if not counters:
        raise CodecError("it contains no network interface except loopback", code=Code.WRONG_TYPE)
    return counters


class NetworkSensor:
    """Reads the byte counters of the network interfaces once per second, and calls `signal` after a change.

    `interval`: least number of seconds between two signals.
    """

    def __init__(self, path: Path, clock: Clock, interval: float, signal: Callable[[], Awaitable[None]]) -> None:
        self._path = path
        self._clock = clock
        self._interval = interval
        self._signal = signal
        self._range = TrafficRange()
        self._signalled_at = float("-inf")
        self._fault = ""

    async def run(self) -> None:
        """Read the counters every second, until cancelled. If they cannot be read, warn once and continue."""
        while True:
            await self.read()
            await self._clock.sleep(READ_SECONDS)

    async def read(self) -> None:
        """Read the counters once, and call `signal` if there is a change and the last signal is old enough."""
        fault = ""
        try:
            counters = await asyncio.to_thread(read_counters, self._path)
        except (OSError, CodecError) as error:
            counters, self._range, fault = {}, TrafficRange(), str(error)
        if fault and fault != self._fault:
            text = "network counters cannot be read; changes of traffic are noticed later. Check counters.network_file"
            _log.warning(text, path=str(self._path), error=fault)
        self._fault = fault
        now = self._clock.boot()
        if not fault and self._range.add(now, counters) and now >= self._signalled_at + self._interval:
            self._signalled_at = now
            await self._signal()
