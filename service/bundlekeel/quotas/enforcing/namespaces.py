"""Cache of the rates and ResourceGroups in namespace policies, read through the admin API.

A broker can take more than a minute to return one policy, so policies are read in parallel and reused for
`KEPT_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import structlog

from bundlekeel.model.errors import AdminApiError, AdminRefused
from bundlekeel.ports import Clock
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.quotas.enforcing.bounded_calls import BoundedCalls
from bundlekeel.quotas.ports import NamespaceRates, QuotaAdmin

_log = structlog.get_logger(__name__)

# A policy is reused for this many seconds, so a change is noticed after this time at the latest.
KEPT_SECONDS: Final = 60.0
# A policy is dropped if it was not requested, or could not be read, for this many seconds.
_DROP_SECONDS: Final = 600.0
_NOT_FOUND: Final = 404


class NamespaceReader:
    """Cache of namespace policies, shared by the two quota enforcers (`policies`, `native`) of one sidecar."""

    def __init__(self, admin: QuotaAdmin, config: BrokerConfig, clock: Clock) -> None:
        self._admin = admin
        self._config = config
        self._clock = clock
        self._policies: dict[str, tuple[NamespaceRates, float]] = {}
        self._tried: dict[str, float] = {}
        self._pace: BoundedCalls[str] = BoundedCalls()
        # The error of each requested namespace that could not be read.
        self.errors: dict[str, str] = {}
        # Requested namespaces that do not exist.
        self.absent: frozenset[str] = frozenset()

    async def read(self, names: Collection[str], seconds: float | None = None) -> dict[str, NamespaceRates]:
        """Return the policies of these namespaces, as far as they are cached or can be read. Never raises.

        A policy that cannot be read keeps its cached value. `seconds`: time limit, after which no read starts and the
        call returns (None: wait for all reads). Namespaces that were not read come first in the next call.
        """
        now = self._clock.boot()
        self._policies = {name: entry for name, entry in self._policies.items() if now - entry[1] < _DROP_SECONDS}
        self._tried = {name: boot for name, boot in self._tried.items() if name in names}
        self.errors = {name: why for name, why in self.errors.items() if name in names}
        self.absent &= set(names)
        never = float("-inf")
        old = [name for name in names if now - self._policies.get(name, (None, never))[1] >= KEPT_SECONDS]
        due = sorted(set(old) - set(self._pace.under_way), key=lambda name: (self._tried.get(name, never), name))
        count = await self._pace.run({name: partial(self._ask, name, now) for name in due}, seconds)
        self._tried |= dict.fromkeys(due[:count], now)
        return {name: self._policies[name][0] for name in names if name in self._policies}

    def forget(self, name: str) -> None:
        """Drop the cached policies of a namespace, because Bundlekeel has written them."""
        self._policies.pop(name, None)

    def clear(self) -> None:
        """Drop all cached policies, when this sidecar becomes the leader."""
        self._policies.clear()
        self._tried.clear()
        self.errors.clear()
        self.absent = frozenset()

    async def stop(self) -> None:
        """Cancel the reads in progress."""
        await self._pace.stop()

    async def _ask(self, name: str, now: float) -> None:
        cluster = self._config.adoptable().get("clusterName", "")
        try:
            self._policies[name] = await self._admin.namespace_rates(name, cluster), now
            self.errors.pop(name, None)
            self.absent -= {name}
        except AdminApiError as error:
            if isinstance(error, AdminRefused) and error.status == _NOT_FOUND:
                self._policies.pop(name, None)
                self.absent |= {name}
            self.errors[name] = str(error)
            _log.info(
                "namespace policies could not be read, a later cycle tries again", namespace=name, error=str(error)
            )
