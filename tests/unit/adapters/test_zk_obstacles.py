"""Why there is no connection to ZooKeeper: said by the part that fails. No server is needed for that."""

from __future__ import annotations

import socket

import pytest

from bundlekeel.adapters.zookeeper.client import ZkClient
from tests.support.contracts.coordination import eventually


def closed_port() -> int:
    """A port of this machine where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("127.0.0.1", "127.0.0.1: the connection is refused; nothing listens there"),
        ("no-such-host.invalid", "no-such-host.invalid: the name cannot be resolved (DNS)"),
    ],
)
async def test_a_name_that_is_unknown_and_a_port_that_is_closed_are_told_apart(host: str, told: str) -> None:
    """And nothing is said of a client that was not started."""
    client = ZkClient(f"{host}:{closed_port()}", "", session_seconds=2, call_timeout_seconds=0.5)
    assert client.obstacle == ""

    async def said() -> bool:
        return client.obstacle == told

    client.start()
    try:
        await eventually(said, within=15.0)
    finally:
        await client.close()
