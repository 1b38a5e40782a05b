"""The content of ZooKeeper itself: nodes, owners, connections, watches and writes."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from kazoo.exceptions import NoNodeError

from dev.cluster import Cluster
from tests.support.contracts.zookeeper import plain

_CONNECTION = re.compile(r"/[\d.]+:(\d+)\[\d\]\(.*?sid=(0x[0-9a-f]+)")
_AUDIT = re.compile(r"(\w+)=(\S*)")
WRITES = ("create", "setData", "delete", "multiOperation", "setAcl")


def kazoo(cluster: Cluster) -> AbstractContextManager[Any]:
    """A session of the test's own, without a chroot."""
    return plain(cluster.zk_hosts)


def read(client: Any, path: str) -> bytes | None:
    """A node's data, None when it is absent."""
    try:
        return bytes(client.get(path)[0])
    except NoNodeError:
        return None


def children(client: Any, path: str) -> list[str]:
    """A node's children, none when it is absent."""
    try:
        return sorted(client.get_children(path))
    except NoNodeError:
        return []


def owner_of(client: Any, bundle: str) -> str:
    """The broker whose ownership node a bundle has, "" for none."""
    data = read(client, f"/pulsar/namespace/{bundle}")
    return urlsplit(json.loads(data).get("httpUrl", "")).netloc if data else ""


def four_letters(cluster: Cluster, word: str) -> str:
    """The server's answer to one of its four letter words."""
    host, _, port = cluster.zk_hosts.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(word.encode())
        parts = iter(lambda: connection.recv(65536), b"")
        return b"".join(parts).decode()


def sessions_of(cluster: Cluster, pids: Iterable[int]) -> set[str]:
    """The ids of the ZooKeeper sessions that these processes hold right now, found by their ports."""
    zk_port = int(cluster.zk_hosts.rpartition(":")[2])
    ports = {
        connection.laddr.port
        for pid in pids
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.raddr and connection.raddr.port == zk_port
    }
    return {sid for port, sid in _CONNECTION.findall(four_letters(cluster, "cons")) if int(port) in ports}


def watched_paths(cluster: Cluster, sessions: Collection[str]) -> set[str]:
    """The nodes any of these sessions watches for data; ZooKeeper does not tell watches on lists of children."""
    paths: set[str] = set()
    session = ""
    for line in four_letters(cluster, "wchc").splitlines():
        if line.startswith("0x"):
            session = line.strip()
        elif line.strip() and session in sessions:
            paths.add(line.strip())
    return paths


@dataclass(frozen=True, slots=True)
class Write:
    """One line of the audit log."""

    session: str
    operation: str
    path: str
    result: str


def audited_writes(log: Path, *, since_byte: int = 0) -> list[Write]:
    """Every change the audit log holds, with the session that asked for it, failed attempts included.

    A transaction is logged step by step; one that failed is a single line without a path, and is left out.
    """
    with log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(since_byte)
        writes = []
        for line in lines:
            values = dict(_AUDIT.findall(line))
            if values.get("operation") in WRITES and "znode" in values:
                path = values["znode"]
                writes.append(Write(values.get("session", ""), values["operation"], path, values.get("result", "")))
        return writes


def session_ids(cluster: Cluster) -> set[str]:
    """Every session that is connected right now."""
    return {sid for _, sid in _CONNECTION.findall(four_letters(cluster, "cons"))}
