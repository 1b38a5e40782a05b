"""Files like /proc/net/dev with the traffic of single brokers. In a cluster on one machine, all share its loopback.

The bytes are those of the TCP connections that a broker accepted, so its own connections to bookies are not included.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from dev.cluster import BrokerInfo

# A sidecar reads the file once per second, and must not see traffic that is much older than the reading.
WRITE_SECONDS = 0.1
_COUNTED = re.compile(r"\bbytes_(?:sent|received):(\d+)")
_HEADER = "Inter-| Receive | Transmit\n face |bytes\n"


@contextlib.contextmanager
def network_files(brokers: Sequence[BrokerInfo], directory: Path) -> Iterator[list[Path]]:
    """Keep one file per broker up to date during the block, and yield the paths in the order of `brokers`."""
    files = [directory / f"{broker.name}.dev" for broker in brokers]
    traffic = AcceptedTraffic([f"{broker.bind_host}:{broker.service_port}" for broker in brokers])
    halt = threading.Event()

    def write() -> None:
        for file, total in zip(files, traffic.read(), strict=True):
            text = f"{_HEADER}  eth0: {total}{' 0' * 15}\n"
            # A reader must not see half of a file.
            new = file.with_suffix(".new")
            new.write_text(text, encoding="ascii")
            new.replace(file)

    def follow() -> None:
        while not halt.wait(WRITE_SECONDS):
            write()

    write()
    thread = threading.Thread(target=follow, name="network files", daemon=True)
    thread.start()
    try:
        yield files
    finally:
        halt.set()
        thread.join()


class AcceptedTraffic:
    """Bytes of the connections that listeners accepted. `listeners`: their addresses, as `host:port`."""

    def __init__(self, listeners: Sequence[str]) -> None:
        self._totals = dict.fromkeys(listeners, 0)
        self._connections: dict[tuple[str, str], int] = {}

    def read(self) -> list[int]:
        """Return the sent and received bytes of each listener since the start of its connections; they never fall.

        The last bytes of a connection that ends between two calls are not included. Raises CalledProcessError or
        OSError if `ss` fails."""
        ports = " or ".join(f"sport = :{listener.rpartition(':')[2]}" for listener in self._totals)
        command = ["ss", "--tcp", "--info", "--numeric", "--no-header", "--oneline", f"( {ports} )"]
        rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        earlier, self._connections = self._connections, {}
        for row in rows:
            local, peer = row.split()[3:5]
            # Java opens IPv6 sockets.
            listener = local.replace("[::ffff:", "").replace("]", "")
            if listener in self._totals:
                counted = sum(map(int, _COUNTED.findall(row)))
                self._connections[local, peer] = counted
                before = earlier.get((local, peer), 0)
                self._totals[listener] += counted - before if counted >= before else counted
        return list(self._totals.values())
