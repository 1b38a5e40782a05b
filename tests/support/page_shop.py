"""A sidecar with ten brokers and four tenants, for the screenshots of the web page and for `python -m dev.ui serve`."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path

from bundlekeel.model.parameters import Parameters
from tests.support.page_world import ServedSidecar
from tests.support.security import Tokens

# For the namespaces of four tenants, the loads of their bundles, used in turn.
NAMESPACES = {
    "checkout/orders": (0.062, 0.041, 0.028),
    "checkout/payments": (0.034, 0.022),
    "telemetry/devices": (0.052, 0.031, 0.017),
    "telemetry/vehicles": (0.036, 0.012),
    "media/uploads": (0.044, 0.018),
    "ledger/bookings": (0.030, 0.014, 0.009),
}
# How much each broker carries, in percent of its capacity: two too much, one is nearly drained.
CARRIED = (84, 73, 62, 59, 57, 55, 54, 52, 14, 46)
NAMES = tuple(f"broker-{number}.pulsar:8080" for number in range(len(CARRIED)))
DEMAND = {
    "persistent://checkout/orders/created": 900.0,
    "persistent://checkout/orders/shipped": 240.0,
    "persistent://checkout/payments/cards": 310.0,
    **{f"persistent://telemetry/devices/readings-partition-{number}": 160.0 for number in range(4)},
    "persistent://telemetry/vehicles/positions": 280.0,
    "persistent://media/uploads/thumbnails": 45.0,
    "persistent://ledger/bookings/entries": 120.0,
}
GROUPS = {
    "checkout": {"members": ("t:checkout",), "publish_messages": 1000, "dispatch_messages": 6000},
    "telemetry": {"members": ("t:telemetry",), "publish_messages": 1500, "publish_bytes": "5MB"},
    "media": {"members": ("n:media/uploads",), "publish_bytes": "80kB"},
}


def loads() -> dict[str, list[tuple[str, float]]]:
    """Return the bundles of each broker: the namespaces in turn, until the broker has its share."""
    rows = cycle(
        [
            (name, share)
            for round_ in range(3)
            for name, shares in NAMESPACES.items()
            for share in shares[round_ : round_ + 1]
        ]
    )
    loads_read: dict[str, list[tuple[str, float]]] = {}
    for broker, percent in zip(NAMES, CARRIED, strict=True):
        loads_read[broker] = []
        while sum(share for _, share in loads_read[broker]) < percent / 100 - 0.02:
            loads_read[broker] += islice(rows, 1)
        loads_read[broker] += [("telemetry/devices", 0.0008)] * 6
    return loads_read


def ten_brokers(tokens: Tokens, params: Parameters | None = None, port: int = 0) -> ServedSidecar:
    """Return a sidecar of ten brokers in mode act, on this port of 127.0.0.1; 0: a free port."""
    return ServedSidecar(
        port=port,
        loads=loads(),
        demand=DEMAND,
        quotas={"enforcer": "policies", "groups": GROUPS},
        tokens=tokens,
        params=params or Parameters(),
        pace=0.3,
        live=True,
        taken_over=True,
        name="bundlekeel-0",
    )


def main() -> None:
    """Serve until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as folder:
        tokens = Tokens(Path(folder))
        with ten_brokers(tokens) as served:
            sys.stdout.write(f"{served.url}/ui/  (token of an operator: {tokens.tokens['operator']}; Ctrl-C ends it)\n")
            sys.stdout.flush()
            with suppress(KeyboardInterrupt):
                threading.Event().wait()


if __name__ == "__main__":
    main()
