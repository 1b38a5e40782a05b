"""What namespaces' own policies say of rates and resource groups: read many at once, and kept for a while."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import structlog

from bundlekeel.core.errors import AdminApiError
from bundlekeel.daemon.brokerconfig import BrokerConfig
from bundlekeel.ports import Clock
from bundlekeel.ports.quotas import NamespaceRates, QuotaAdmin
from bundlekeel.work import bounded

_log = structlog.get_logger(__name__)

# Requests to brokers at a time.
PARALLEL: Final = 8
# Read again after this: so late it is noticed what people change.
KEPT_SECONDS: Final = 60.0
# What nobody asks for any more, and what could not be read for so long, is forgotten.
_FORGOTTEN_SECONDS: Final = 600.0


class NamespaceReader:
    """One for whatever enforces quotas."""

    def __init__(self, admin: QuotaAdmin, config: BrokerConfig, clock: Clock) -> None:
        self._admin = admin
        self._config = config
        self._clock = clock
        self._kept: dict[str, tuple[NamespaceRates, float]] = {}

    async def read(self, names: Collection[str]) -> dict[str, NamespaceRates]:
        """What is known of each; what cannot be read stays as it was, or is not there. Never raises."""
        now = self._clock.boot()
        self._kept = {name: kept for name, kept in self._kept.items() if now - kept[1] < _FORGOTTEN_SECONDS}
        old = [name for name in sorted(names) if now - self._kept.get(name, (None, float("-inf")))[1] >= KEPT_SECONDS]
        await bounded([partial(self._ask, name, now) for name in old], limit=PARALLEL)
        return {name: self._kept[name][0] for name in names if name in self._kept}

    def forget(self, name: str) -> None:
        """Its policies were written: read them anew."""
        self._kept.pop(name, None)

    def clear(self) -> None:
        """A term begins: nothing is known."""
        self._kept.clear()

    async def _ask(self, name: str, now: float) -> None:
        cluster = self._config.adoptable().get("clusterName", "")
        try:
            self._kept[name] = await self._admin.namespace_rates(name, cluster), now
        except AdminApiError as error:
            _log.info("policies of a namespace not read", namespace=name, error=str(error))
