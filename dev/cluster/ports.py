"""Choose unused TCP ports."""

from __future__ import annotations

import random
import socket

from dev.cluster.spec import ClusterError

# Below the kernel's range for outgoing connections (32768 and up): a port chosen here stays ours
# while its process is down for a restart.
LOWEST, HIGHEST = 15000, 31999
ATTEMPTS = 1000


def free_ports(count: int) -> list[int]:
    """Return ``count`` different ports free on every address of this machine.

    Chosen at random, so that two clusters starting together rarely meet; nothing is reserved.
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
    """Bind the wildcard address: that fails when any address of the machine has the port."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
