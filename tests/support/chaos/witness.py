"""Read the intents and leaders over time from ZooKeeper's audit log, and end sessions of sidecars.

The log contains sessions, not sidecars. The sidecar of a session follows from the nodes of the seats and of the leader
while these exist.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from dev.cluster import Cluster
from tests.support.chaos.history import Intent, Term

_LINE: Final = re.compile(r"^(\S+) \w+ session=(0x[0-9a-f]+)\t.*?operation=(\w+)\tznode=(\S+)\t.*?result=success")
_LOOK_SECONDS: Final = 0.2
_CLOSED: Final = "ephemeralZNodeDeletionOnSessionCloseOrExpire"
# ZooKeeper's greeting: length, protocol, time-out, session id, length of the password, password.
_GREETING: Final = struct.Struct(">iiiqi16s")


@dataclass(frozen=True, slots=True)
class Change:
    """The creation or deletion of a node: time (boot clock), session, and path below the root of the sidecars."""

    at: float
    session: str
    made: bool
    path: str


class StoreWitness:
    """A context manager that reads the audit log for one root of sidecars. `root` is an absolute path, for example
    `/pulsar/bundlekeel/chaos`."""

    def __init__(self, cluster: Cluster, root: str) -> None:
        self._cluster = cluster
        self._root = root
        self._client: Any = KazooClient(hosts=cluster.zk_hosts, timeout=10.0)
        self._members: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, name="witness", daemon=True)
        self._boot_offset = time.clock_gettime(time.CLOCK_BOOTTIME) - time.time()

    def __enter__(self) -> StoreWitness:
        """Start to read the log."""
        self._client.start(timeout=20)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reading."""
        self._stopping.set()
        self._thread.join(10)
        self._client.stop()
        self._client.close()

    def boot_of(self, wall_ms: float) -> float:
        """Return the boot clock's seconds at a time of the wall clock (Unix ms)."""
        return wall_ms / 1000 + self._boot_offset

    # --- what was seen -------------------------------------------------------------------------------------

    def open_intents(self) -> list[str]:
        """Return the bundles that have an intent now; empty while ZooKeeper does not respond."""
        with contextlib.suppress(KazooException):
            return [unquote(name) for name in self._client.get_children(f"{self._root}/intents")]
        return []

    def intents(self) -> list[Intent]:
        """Return every intent so far, in the order of their starts."""
        intents: list[Intent] = []
        for change in self._changes():
            folder, _, name = change.path.rpartition("/")
            if folder != "intents":
                continue
            bundle = unquote(name)
            if change.made:
                intents.append(Intent(bundle=bundle, begun=change.at))
                continue
            place = next((n for n, item in enumerate(intents) if item.bundle == bundle and item.ended is None), None)
            if place is not None:
                intents[place] = replace(intents[place], ended=change.at)
        return intents

    def terms(self) -> list[Term]:
        """Return the term of every leader so far. Their epochs are numbered from the first term on."""
        terms: list[Term] = []
        for change in self._changes():
            if change.path != "leader":
                continue
            if terms and terms[-1].ended is None:
                terms[-1] = replace(terms[-1], ended=change.at)
            if change.made:
                member = self._members.get(change.session, change.session)
                terms.append(Term(epoch=len(terms) + 1, member=member, begun=change.at))
        return terms

    def greeting_of(self, member: str, greetings: Sequence[bytes]) -> bytes | None:
        """Return ZooKeeper's newest greeting to the session of the sidecar's seat. A second client of the sidecar, for
        the configuration store, has its own session. None while the sidecar has no seat.
        """
        sessions = {session for session, name in self._members.items() if name == member}
        complete = [item for item in greetings if len(item) >= _GREETING.size]
        return next((item for item in reversed(complete) if f"0x{_GREETING.unpack_from(item)[3]:x}" in sessions), None)

    def _changes(self) -> Iterator[Change]:
        prefix = f"{self._root}/"
        with self._cluster.zk_audit_log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                match = _LINE.match(line)
                if match is None or not match[4].startswith(prefix):
                    continue
                if match[3] not in ("create", "delete", _CLOSED):
                    continue
                at = datetime.fromisoformat(match[1].replace(",", ".")).astimezone().timestamp() * 1000
                created = match[3] == "create"
                yield Change(self.boot_of(at), match[2], created, match[4].removeprefix(prefix))

    def _look(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            with contextlib.suppress(KazooException, ValueError):
                seats = self._client.get_children(f"{self._root}/seats")
                for path in ("leader", *(f"seats/{name}" for name in seats)):
                    self._learn(f"{self._root}/{path}")

    def _learn(self, path: str) -> None:
        with contextlib.suppress(KazooException):
            data, stat = self._client.get(path)
            self._members[f"0x{stat.ephemeralOwner:x}"] = str(json.loads(data)["id"])


def end_session(hosts: str, greeting: bytes) -> None:
    """End a client's session: connect with the same session id and password, and close it. `greeting`: the first bytes
    that ZooKeeper sent to the client, which contain both."""
    _, _, _, session, _, password = _GREETING.unpack(greeting[: _GREETING.size])
    client: Any = KazooClient(hosts=hosts, client_id=(session, password), timeout=4.0)
    client.start(timeout=10)
    client.stop()
    client.close()
