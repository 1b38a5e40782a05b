"""Files like /proc/net/dev with the traffic of local brokers, as sidecars read them."""

from __future__ import annotations

import shutil
import socket
import time
from pathlib import Path

import pytest

from bundlekeel.pulsar.counters.network_sensor import read_counters
from dev.cluster import BrokerInfo
from evidence.reaction.network import network_files

HOST = "127.0.1.9"


def broker_at(port: int) -> BrokerInfo:
    """Return a broker that listens on a port of `HOST`."""
    return BrokerInfo(
        name="broker",
        broker_id=f"{HOST}:1",
        web_url=f"http://{HOST}:1",
        service_url=f"pulsar://{HOST}:{port}",
        bind_host=HOST,
        advertised_host=HOST,
        web_port=1,
        service_port=port,
    )


@pytest.mark.skipif(shutil.which("ss") is None, reason="needs the program ss")
def test_a_sidecar_reads_the_bytes_of_accepted_connections(tmp_path: Path) -> None:
    """Also those of a connection that has ended, but not those of another broker's clients."""
    with socket.create_server((HOST, 0)) as listener, socket.create_server((HOST, 0)) as other:
        brokers = [broker_at(listener.getsockname()[1])]
        with network_files(brokers, tmp_path) as (file,):
            assert read_counters(file) == {"eth0": 0}
            with socket.create_connection(other.getsockname()), socket.create_connection(listener.getsockname()) as one:
                accepted, _ = listener.accept()
                with accepted:
                    one.sendall(b"x" * 5000)
                    accepted.sendall(b"x" * 700)
                    until_counted(file, 5700)
            with socket.create_connection(listener.getsockname()) as two:
                two.sendall(b"x" * 300)
                until_counted(file, 6000)


def until_counted(file: Path, expected: int) -> None:
    """Wait until a file contains exactly this number of bytes."""
    deadline = time.monotonic() + 20.0
    while read_counters(file) != {"eth0": expected}:
        assert time.monotonic() < deadline, read_counters(file)
        time.sleep(0.05)
