"""What the ZooKeeper client and its users share: node statistics, transaction steps, faults.

Everything kazoo hands out is translated into these, so that kazoo stays in `client.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from bundlekeel.core.model.errors import StaleWrite, StoreError

Connection = Literal["connected", "suspended", "lost"]


class Stat(NamedTuple):
    """What ZooKeeper keeps about a node.

    `mzxid` names the transaction that wrote the data last (it also changes when a node is made anew),
    `version` counts data writes since creation, `ephemeral_owner` is the session id or 0, `length` in bytes.
    """

    mzxid: int
    version: int
    ephemeral_owner: int
    length: int


class NodeMissing(StoreError):
    """The node (or its parent) does not exist."""


class NodeExists(StaleWrite):
    """The node was to be created, but is there already."""


class VersionMismatch(StaleWrite):
    """The node's data version is not the expected one."""


Fault = Literal["bad_version", "missing", "exists", "other"]


class TransactionFailed(StoreError):
    """ZooKeeper rolled a transaction back; step `index` failed because of `fault`."""

    def __init__(self, message: str, *, index: int, fault: Fault) -> None:
        super().__init__(message)
        self.index = index
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStep:
    """One step of a transaction. `version` -1 means any; `ephemeral` counts for `create` only."""

    kind: Literal["check", "create", "set", "delete"]
    path: str
    data: bytes = b""
    version: int = -1
    ephemeral: bool = False
