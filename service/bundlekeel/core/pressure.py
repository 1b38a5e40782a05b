"""What a broker's usage is made of: its bundles' shares by traffic, and what it uses without any."""

from __future__ import annotations

from typing import Final

import numpy as np

from bundlekeel.core.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    DIRECT_MEMORY,
    MSG_RATE,
    RATE_IN,
    RATE_OUT,
    RESOURCES,
    THROUGHPUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Floats,
)

# A broker with less than this share of the mean throughput shows what a broker uses without traffic.
IDLE_SHARE: Final = 0.05


def idle_cpu(usage: Floats, traffic: Floats) -> float:
    """CPU that a broker uses without traffic, in the unit of `usage` (percent of one core): the least of the brokers
    that are nearly idle, 0.0 when none is. `usage`: (brokers, 6), `traffic`: (brokers, 4).

    Only as good as the one idle broker it is seen at, so it serves to judge how large a difference is, not to predict
    what a move does.
    """
    size = traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT]
    idle = usage[size <= IDLE_SHARE * size.mean(), CPU] if size.any() else usage[:0, CPU]
    return float(idle.min()) if idle.size else 0.0


def shares_of(carried: Floats, whole: Floats) -> Floats:
    """Each bundle's share of its broker's resources by traffic; shape (n, 6). `carried`: (n, 4), `whole`: (4,)."""
    parts = np.column_stack(
        [
            carried[:, THROUGHPUT_IN],
            carried[:, THROUGHPUT_OUT],
            carried[:, RATE_IN] + carried[:, RATE_OUT],
            carried[:, THROUGHPUT_IN] + carried[:, THROUGHPUT_OUT],
        ]
    )
    totals = np.array(
        [
            whole[THROUGHPUT_IN],
            whole[THROUGHPUT_OUT],
            whole[RATE_IN] + whole[RATE_OUT],
            whole[THROUGHPUT_IN] + whole[THROUGHPUT_OUT],
        ]
    )
    bytes_in, bytes_out, rate, size = np.divide(parts, totals, out=np.zeros_like(parts), where=totals > 0).T
    shares = np.empty((len(carried), len(RESOURCES)))
    # The mean of the shares that exist: a broker may carry bytes without messages, never the other way round.
    shares[:, CPU] = (rate + size) / 2 if totals[2] > 0 and totals[3] > 0 else rate + size
    shares[:, DIRECT_MEMORY] = size
    shares[:, BANDWIDTH_IN] = bytes_in
    shares[:, BANDWIDTH_OUT] = bytes_out
    shares[:, MSG_RATE] = rate
    shares[:, THROUGHPUT] = size
    return shares
