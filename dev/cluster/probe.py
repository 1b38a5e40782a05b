"""Check whether processes are ready. Every check has a time limit."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable

from dev.cluster.process import Child
from dev.identity import Identity

ASK_TIMEOUT_SECONDS = 2.0
POLL_SECONDS = 0.05


def wait_until(ready: Callable[[], bool], child: Child, within_seconds: float) -> None:
    """Poll until ``ready`` returns True. Raises ClusterError if the child ends or the time limit passes."""
    deadline = time.monotonic() + within_seconds
    while not ready():
        if not child.alive:
            code = child.process.poll() if child.process else None
            raise child.failure(f"ended with exit code {code} before it was ready")
        if time.monotonic() > deadline:
            raise child.failure(f"was not ready within {within_seconds:.0f} s")
        time.sleep(POLL_SECONDS)


def accepts(host: str, port: int) -> bool:
    """Return whether the port accepts connections."""
    try:
        with socket.create_connection((host, port), ASK_TIMEOUT_SECONDS):
            return True
    except OSError:
        return False


def zookeeper_serves(host: str, port: int) -> bool:
    """Return whether ZooKeeper responds to "srvr" as a server that accepts requests."""
    try:
        with socket.create_connection((host, port), ASK_TIMEOUT_SECONDS) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode:" in answer


def http_get(host: str, port: int, path: str, caller: Identity | None = None) -> tuple[int, bytes] | None:
    """Send a GET and do not follow redirects. Return status and body; None if no response arrives in time."""
    if caller is None:
        connection = http.client.HTTPConnection(host, port, timeout=ASK_TIMEOUT_SECONDS)
    else:
        connection = http.client.HTTPSConnection(host, port, timeout=ASK_TIMEOUT_SECONDS, context=caller.tls)
    try:
        connection.request("GET", path, headers=caller.headers if caller is not None else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def broker_ready(host: str, port: int, caller: Identity | None = None) -> bool:
    """Return whether a broker reports that it is ready, which means that its load manager has started."""
    answer = http_get(host, port, "/admin/v2/brokers/ready", caller)
    return answer is not None and answer[0] == 200


def brokers_listed(host: str, port: int, cluster: str, caller: Identity | None = None) -> set[str]:
    """Return the ids of the brokers that this broker lists; empty if it does not respond."""
    answer = http_get(host, port, f"/admin/v2/brokers/{cluster}", caller)
    if answer is None or answer[0] != 200:
        return set()
    listed = json.loads(answer[1])
    return {str(broker_id) for broker_id in listed} if isinstance(listed, list) else set()
