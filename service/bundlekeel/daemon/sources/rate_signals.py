"""Reads how the brokers' clients fare, and keeps the adaptive rate (core/guard/rate.py) up to date.

Only where the brokers run the modular load manager: an extensible broker's metrics advance its averages when they are
read, so they are never asked for (docs/concepts/guard.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog

from bundlekeel.core.guard.rate import LOWEST, ClientSigns, RateMemory, advance, without
from bundlekeel.core.model.errors import AdminApiError, CodecError
from bundlekeel.ports import BrokerAdmin, Clock, RawClusterView

_log = structlog.get_logger(__name__)

# A broker that does not answer in time is left out this time.
ASK_SECONDS: Final = 5.0
# Brokers asked in one look; of more, those that gave or took lately, and the others in turn.
MOST: Final = 50
# After this many intervals without a completed look, or without a reading of a broker, its last reading is too old.
STALE_INTERVALS: Final = 3


class RateSignals:
    """Looks at the brokers every so often (`run`); the guard takes `moves` into each plan."""

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
        """`concerned`: brokers that gave or took a bundle lately; `ceiling`: moves a cycle may make anyway."""
        self._admin = admin
        self._clock = clock
        self._picture = picture
        self._concerned = concerned
        self._ceiling = ceiling
        self._every = every_seconds
        self._turn = 0
        self._looked_boot = clock.boot()
        self.memory = RateMemory()

    @property
    def moves(self) -> int | None:
        """Moves a cycle may make by the clients' fate; None: no limit from here. Without a recent look: the least."""
        stale = self._clock.boot() - self._looked_boot > STALE_INTERVALS * self._every
        return int(LOWEST) if stale else self.memory.moves

    async def run(self) -> None:
        """For ever: a look every so often."""
        while True:
            await self.look()
            await self._clock.sleep(self._every)

    async def look(self) -> None:
        """One look; forgets everything where the brokers may not be asked."""
        picture = self._picture()
        if picture is None or picture.mode != "modular":
            self.memory, self._looked_boot = RateMemory(), self._clock.boot()
            return
        concerned = frozenset(self._concerned()) & picture.endpoints.keys()
        brokers = self._asked(sorted(picture.endpoints), concerned)
        answers = await asyncio.gather(*(self._ask(broker) for broker in brokers))
        signs = {broker: found for broker, found in zip(brokers, answers, strict=True) if found is not None}
        before = self.memory
        kept, now_ms = without(before, before.last.keys() - picture.endpoints.keys()), int(1000 * self._clock.boot())
        recent_ms = now_ms - 1000 * STALE_INTERVALS * self._every
        recent = signs.keys() | {broker for broker, (at_ms, _) in kept.last.items() if at_ms >= recent_ms}
        self.memory = advance(kept, signs, concerned, ceiling=self._ceiling(), now_ms=now_ms, unread=concerned - recent)
        self._looked_boot = self._clock.boot()
        if self.memory.allowed != before.allowed:
            _log.info("adaptive rate", moves=self.memory.moves, reason=self.memory.reason)

    def _asked(self, brokers: list[str], concerned: frozenset[str]) -> list[str]:
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
            _log.debug("client signals could not be read", broker=broker, error=str(error))
            return None
