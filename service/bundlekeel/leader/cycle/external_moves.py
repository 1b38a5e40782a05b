"""Detect moves of bundles that Bundlekeel did not start.

The leader confirms these moves in the metadata store, records them, and does not move the bundles during a cool-down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import structlog

from bundlekeel.leader.gate.gate import Obstacle
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, StoreError
from bundlekeel.model.names import namespace_of
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.guard import external_moves as core
from bundlekeel.planning.guard.external_moves import ExternalMove, ExternalMoves, Landing, SeenOwners
from bundlekeel.ports import Ownership, RawClusterView, Telemetry
from bundlekeel.pulsar.formats.external_input import utc

_log = structlog.get_logger(__name__)

# Each confirmation reads the store once. The next cycle confirms the remaining moves.
MOST_CONFIRMED: Final = 50


class ExternalMoveWatch:
    """Detects external moves: those that Bundlekeel did not start. The cycle's state contains the results."""

    def __init__(
        self,
        ownership: Ownership,
        record: Callable[[Mapping[str, Any]], None],
        telemetry: Telemetry,
        *,
        heed: bool = True,
    ) -> None:
        """`heed` False: external moves are not detected."""
        self._ownership = ownership
        self._record = record
        self._telemetry = telemetry
        self._heed = heed
        self._seen = SeenOwners()
        self._trusted_since: int | None = None

    async def look(
        self,
        snapshot: Snapshot,
        picture: RawClusterView,
        *,
        moves: Iterable[Mapping[str, Any]],
        unsettled: Collection[str],
        trusted: bool,
        lag_seconds: float,
        within: tuple[str, ...] = (),
    ) -> tuple[ExternalMove, ...]:
        """Return the external moves since the last call.

        `moves`: records of Bundlekeel's own moves. `unsettled`: bundles with a move of Bundlekeel that is not over.
        `trusted`: whether brokers and operators have no reason to move bundles now. Nothing is returned until `trusted`
        has been True for `lag_seconds`, because load reports may be that old. `within`: namespaces of a partial
        takeover; (): all."""
        if not self._heed or not trusted:
            self._seen, self._trusted_since = SeenOwners(), None
            return ()
        now = snapshot.wall_ms
        since = self._trusted_since = now if self._trusted_since is None else self._trusted_since
        starts = {broker: endpoint.start_timestamp for broker, endpoint in picture.endpoints.items()}
        self._seen, changes = core.look(self._seen, snapshot, starts, _landings(moves, now), unsettled)
        if now - since < 1000 * lag_seconds:
            return ()
        ours = [change for change in changes if not within or namespace_of(change.bundle) in within]
        confirmed = tuple([change for change in ours[:MOST_CONFIRMED] if await self._confirmed(change)])
        for change in confirmed:
            self._telemetry.count("external_moves_total", undone=str(change.undone).lower())
            record = change.record()
            self._record(record)
            _log.warning("external move detected", sentence=record["sentence"])
        return confirmed

    async def _confirmed(self, change: ExternalMove) -> bool:
        """Return whether the bundle's owner in the metadata store confirms the move: a load report may be outdated."""
        try:
            owner = await self._ownership.owner(change.bundle)
        except (StoreError, CodecError):
            return False
        return owner is not None and owner.broker_id == change.target


def second_balancer(moves: ExternalMoves, now_ms: int) -> Obstacle | None:
    """Return the obstacle to all moves while another balancer seems to be active, else None."""
    if moves.rest_until_ms <= now_ms:
        return None
    until = utc(moves.rest_until_ms, field="rest_until_ms").strftime("%H:%M:%SZ")
    names = sorted({bundle for bundle, _ in moves.undone})
    return Obstacle(code=Code.SECOND_BALANCER, detail=f"undone moves of {', '.join(names[:3])}; no moves until {until}")


def _landings(moves: Iterable[Mapping[str, Any]], now_ms: int) -> dict[str, Landing]:
    landings: dict[str, Landing] = {}
    for record in moves:
        at, landed = int(record.get("landed_ms") or 0), str(record.get("landed_on") or "")
        if landed and now_ms - at < core.FORGET_MS:
            bundle = str(record.get("bundle"))
            landings[bundle] = Landing(source=str(record.get("source")), landed_on=landed, at_ms=at)
    return landings
