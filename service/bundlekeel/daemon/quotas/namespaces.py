"""What namespaces' own policies say of rates and resource groups: read many at once, and kept for a while."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import structlog

from bundlekeel.bounded_calls import BoundedCalls
from bundlekeel.core.model.errors import AdminApiError, AdminRefused
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.ports import Clock
from bundlekeel.ports.quotas import NamespaceRates, QuotaAdmin

_log = structlog.get_logger(__name__)

# Read again after this: so late it is noticed what people change.
KEPT_SECONDS: Final = 60.0
# What is not asked for any more, and what could not be read for so long, is forgotten.
_FORGOTTEN_SECONDS: Final = 600.0
_NOT_FOUND: Final = 404


class NamespaceReader:
    """One for whatever enforces quotas."""

    def __init__(self, admin: QuotaAdmin, config: BrokerConfig, clock: Clock) -> None:
        self._admin = admin
        self._config = config
        self._clock = clock
        self._kept: dict[str, tuple[NamespaceRates, float]] = {}
        self._tried: dict[str, float] = {}
        self._pace: BoundedCalls[str] = BoundedCalls()
        # Why those that were asked for and could not be read could not.
        self.errors: dict[str, str] = {}
        # Those of them that are not there any more.
        self.absent: frozenset[str] = frozenset()

    async def read(self, names: Collection[str], seconds: float | None = None) -> dict[str, NamespaceRates]:
        """What is known of each; what cannot be read stays as it was, or is not there. Never raises. `seconds`: no
        longer than that (None: as long as it takes); what was not begun is read first the next time."""
        now = self._clock.boot()
        self._kept = {name: kept for name, kept in self._kept.items() if now - kept[1] < _FORGOTTEN_SECONDS}
        self._tried = {name: boot for name, boot in self._tried.items() if name in names}
        self.errors = {name: why for name, why in self.errors.items() if name in names}
        self.absent &= set(names)
        never = float("-inf")
        old = [name for name in names if now - self._kept.get(name, (None, never))[1] >= KEPT_SECONDS]
        due = sorted(set(old) - set(self._pace.under_way), key=lambda name: (self._tried.get(name, never), name))
        begun = await self._pace.run({name: partial(self._ask, name, now) for name in due}, seconds)
        self._tried |= dict.fromkeys(due[:begun], now)
        return {name: self._kept[name][0] for name in names if name in self._kept}

    def forget(self, name: str) -> None:
        """Its policies were written: read them anew."""
        self._kept.pop(name, None)

    def clear(self) -> None:
        """A term begins: nothing is known."""
        self._kept.clear()
        self._tried.clear()
        self.errors.clear()
        self.absent = frozenset()

    async def stop(self) -> None:
        """End what is under way."""
        await self._pace.stop()

    async def _ask(self, name: str, now: float) -> None:
        cluster = self._config.adoptable().get("clusterName", "")
        try:
            self._kept[name] = await self._admin.namespace_rates(name, cluster), now
            self.errors.pop(name, None)
            self.absent -= {name}
        except AdminApiError as error:
            if isinstance(error, AdminRefused) and error.status == _NOT_FOUND:
                self._kept.pop(name, None)
                self.absent |= {name}
            self.errors[name] = str(error)
            _log.info("policies of a namespace not read", namespace=name, error=str(error))
