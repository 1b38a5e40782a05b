"""Reads latency and errors of the brokers' clients, and updates the adaptive rate (a limit of moves that falls when
clients get worse service; planning/guard/rate.py).

Only for the modular load manager: each read of an extensible broker's metrics changes its load averages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog

from bundlekeel.model.errors import AdminApiError, CodecError
from bundlekeel.planning.guard.rate import LOWEST, ClientSigns, RateMemory, advance, without
from bundlekeel.ports import BrokerAdmin, Clock, RawClusterView

_log = structlog.get_logger(__name__)

# Skip a broker that does not respond within this time.
ASK_SECONDS: Final = 5.0
# Largest number of brokers that one check queries: sources and targets of recent moves first; the others take turns.
MOST: Final = 50
# After this many intervals without a completed check, or without a reading of a broker, the last reading is too old.
STALE_INTERVALS: Final = 3


class RateSignals:
    """Checks the brokers' clients periodically (`run`). `moves` is the resulting limit of moves per plan."""

    def __init__(
        self,
        admin: BrokerAdmin,
        clock: Clock,
        *,
        picture: Callable[[], RawClusterView | None],
        concerned: Callable[[], Collection[str]],
        ceiling: Callable[[], int],
        every_seconds: float,
    ) -> None:
        """Store the dependencies.

        `picture`: returns the newest view of the cluster; None: brokers must not be queried. `concerned`: returns
        source and target brokers of recent moves. `ceiling`: returns the maximum moves per plan without this limit.
        """
        self._admin = admin
        self._clock = clock
        self._picture = picture
        self._concerned = concerned
        self._ceiling = ceiling
        self._every = every_seconds
        self._turn = 0
        self._checked_boot = clock.boot()
        self.memory = RateMemory()

    @property
    def moves(self) -> int | None:
        """Maximum moves per plan, by the effect of moves on clients; None: no limit. Lowest if the last check is
        old."""
        stale = self._clock.boot() - self._checked_boot > STALE_INTERVALS * self._every
        return int(LOWEST) if stale else self.memory.moves

    async def run(self) -> None:
        """Check the brokers' clients periodically until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(self._every)

    async def look(self) -> None:
        """Check the brokers' clients once. If brokers must not be queried, drop all earlier readings."""
        picture = self._picture()
        if picture is None or picture.mode != "modular":
            self.memory, self._checked_boot = RateMemory(), self._clock.boot()
            return
        concerned = frozenset(self._concerned()) & picture.endpoints.keys()
        brokers = self._select(sorted(picture.endpoints), concerned)
        answers = await asyncio.gather(*(self._ask(broker) for broker in brokers))
        signs = {broker: sign for broker, sign in zip(brokers, answers, strict=True) if sign is not None}
        before = self.memory
        memory, now_ms = without(before, before.last.keys() - picture.endpoints.keys()), int(1000 * self._clock.boot())
        recent_ms = now_ms - 1000 * STALE_INTERVALS * self._every
        recent = signs.keys() | {broker for broker, (at_ms, _) in memory.last.items() if at_ms >= recent_ms}
        self.memory = advance(
            memory, signs, concerned, ceiling=self._ceiling(), now_ms=now_ms, unread=concerned - recent
        )
        self._checked_boot = self._clock.boot()
        if self.memory.allowed != before.allowed:
            _log.info(
                "limit of moves per cycle adapted to the latency and errors of clients",
                moves=self.memory.moves,
                reason=self.memory.reason,
            )

    def _select(self, brokers: list[str], concerned: frozenset[str]) -> list[str]:
        if len(brokers) <= MOST:
            return brokers
        others = [broker for broker in brokers if broker not in concerned]
        room = max(1, MOST - len(concerned))
        start, self._turn = self._turn % len(others) if others else 0, self._turn + room
        return sorted({*concerned, *(others[start:] + others[:start])[:room]})

    async def _ask(self, broker: str) -> ClientSigns | None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._admin.client_signs(broker)
        except (AdminApiError, CodecError, TimeoutError) as error:
            _log.debug("client latency and errors could not be read; retrying", broker=broker, error=str(error))
            return None
