"""A sidecar among the replicas of a cluster. The command line imports this module, so it needs no numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bundlekeel.model.doc import Answer, Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Answer):
    """A sidecar as it describes itself in its seat node and, while it leads, in the leader node."""

    id: Annotated[str, Doc("the name of the sidecar")]
    url: Annotated[str, Doc("the address of its API; empty: unknown")] = ""
    version: Annotated[str, Doc("the release it runs")] = ""
    started_ms: Annotated[int, Doc("when its process began")] = 0
    seat: Annotated[int, Doc("its seat; -1: none")] = -1
    epoch: Annotated[int, Doc("of its term as leader; -1: it does not lead")] = -1
    settings: Annotated[
        str, Doc("digest of its settings without what is of its host alone; the same at all sidecars; empty: unknown")
    ] = ""
