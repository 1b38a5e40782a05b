"""Description of one of the sidecars of a cluster. The command line imports this module, so it needs no numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bundlekeel.model.doc import Answer, Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Answer):
    """What a sidecar publishes about itself in ZooKeeper.

    It is stored in the node of its seat (the right to read the cluster and to lead) and, while the sidecar leads, in
    the node of the leader.
    """

    id: Annotated[str, Doc("name of the sidecar")]
    url: Annotated[str, Doc("address of the sidecar's API; empty: unknown")] = ""
    version: Annotated[str, Doc("Bundlekeel release of the sidecar")] = ""
    started_ms: Annotated[int, Doc("start of the sidecar's process")] = 0
    seat: Annotated[int, Doc("number of its seat, the right to read the cluster and to lead; -1: none")] = -1
    epoch: Annotated[int, Doc("number of its term as leader; -1: it does not lead")] = -1
    settings: Annotated[
        str, Doc("digest of its settings without those of its host; equal at all sidecars; empty: unknown")
    ] = ""
