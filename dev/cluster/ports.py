"""Choose unused TCP ports."""

from __future__ import annotations

import random
import socket

from dev.cluster.spec import ClusterError

# Below the kernel's range for outgoing connections (32768 and up), so that no connection takes the port while its
# process restarts.
LOWEST, HIGHEST = 15000, 31999
ATTEMPTS = 1000


def free_ports(count: int) -> list[int]:
    """Return ``count`` different ports free on every address of this machine.

    They are chosen at random, so that two clusters that start together rarely choose the same. They are not reserved.
    Raises ClusterError when the range is exhausted.
    """
    rng = random.SystemRandom()
    ports: list[int] = []
    for _ in range(ATTEMPTS):
        if len(ports) == count:
            return ports
        candidate = rng.randint(LOWEST, HIGHEST)
        if candidate not in ports and _is_free(candidate):
            ports.append(candidate)
    raise ClusterError(f"found no {count} free ports between {LOWEST} and {HIGHEST}")


def _is_free(port: int) -> bool:
    """Return whether no address of the machine uses the port. If an address uses it, binding the wildcard address
    fails."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
