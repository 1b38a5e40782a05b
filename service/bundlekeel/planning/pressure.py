"""How much of a broker's resource usage each of its bundles causes, by traffic."""

from __future__ import annotations

import numpy as np

from bundlekeel.model.load import (
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


def shares_of(carried: Floats, whole: Floats) -> Floats:
    """Return each bundle's share of the usage of its broker's resources; shape (n, 6), columns of `RESOURCES`.

    `carried`: traffic of the bundles, shape (n, 4). `whole`: traffic of the broker, shape (4,).
    """
    rates, sizes = float(whole[RATE_IN] + whole[RATE_OUT]), float(whole[THROUGHPUT_IN] + whole[THROUGHPUT_OUT])
    bytes_in = _share(carried[:, THROUGHPUT_IN], float(whole[THROUGHPUT_IN]))
    bytes_out = _share(carried[:, THROUGHPUT_OUT], float(whole[THROUGHPUT_OUT]))
    rate = _share(carried[:, RATE_IN] + carried[:, RATE_OUT], rates)
    size = _share(carried[:, THROUGHPUT_IN] + carried[:, THROUGHPUT_OUT], sizes)
    shares = np.empty((len(carried), len(RESOURCES)))
    # The mean of the existing shares: a broker can have bytes without messages, but not messages without bytes.
    shares[:, CPU] = (rate + size) / 2 if rates > 0 and sizes > 0 else rate + size
    shares[:, DIRECT_MEMORY] = size
    shares[:, BANDWIDTH_IN] = bytes_in
    shares[:, BANDWIDTH_OUT] = bytes_out
    shares[:, MSG_RATE] = rate
    shares[:, THROUGHPUT] = size
    return shares


def _share(parts: Floats, whole: float) -> Floats:
    share: Floats = parts / whole if whole > 0 else np.zeros(len(parts))
    return share
