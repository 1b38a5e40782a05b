"""Current isolation and anti-affinity policies: read once per cycle, and again right before each move.

Policies that cannot be read never count as "no policy": bundles of these namespaces do not move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, StoreError
from bundlekeel.model.names import is_system_bundle, namespace_of
from bundlekeel.model.plan import Refusal
from bundlekeel.model.policies import Policies
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.filters.allowed import limits_of
from bundlekeel.planning.owned import with_owned
from bundlekeel.ports import Metadata
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig

_log = structlog.get_logger(__name__)


class PolicyCache:
    """Policies of the last cycle: from the stores, and from brokers' settings, which show whether they apply."""

    def __init__(self, metadata: Metadata, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._config = config
        self._snapshot: Snapshot | None = None
        self.current = Policies(unknown="policies have not been read yet")

    async def refresh(self, snapshot: Snapshot) -> Policies:
        """Read the policies of the namespaces in this snapshot. Never raises: unreadable policies become `unknown`."""
        self._snapshot = snapshot
        policies = await self.read(snapshot.bundles.namespaces)
        if policies.unknown and policies.unknown != self.current.unknown:
            _log.warning("policies could not be read; nothing moves", error=policies.unknown)
        self.current = policies
        return policies

    async def read(self, namespaces: Iterable[str]) -> Policies:
        """Return the current policies of these namespaces. Never raises, like `refresh`."""
        settings = self._config.adoptable()
        cluster = settings.get("clusterName", "")
        if not cluster:
            return Policies(unknown="no broker has reported the name of its cluster (clusterName)")
        names = [name for name in dict.fromkeys(namespaces) if not is_system_bundle(f"{name}/")]
        try:
            records = await self._metadata.policies(cluster, names)
        except (StoreError, CodecError) as error:
            return Policies(unknown=str(error))
        return Policies(
            isolation=records.isolation,
            anti_affinity=records.anti_affinity,
            failure_domains=records.failure_domains,
            unreadable=records.unreadable,
            failure_domains_enabled=_flag(settings, "failureDomainsEnabled", default=False),
            distribute_evenly=_flag(settings, "loadBalancerDistributeBundlesEvenlyEnabled", default=True),
            prefer_later_versions=_flag(settings, "preferLaterVersions", default=False),
            load_manager=settings.get("loadManagerClassName", ""),
        )

    async def forbids(self, bundle: str, destination: str) -> Refusal | None:
        """Read the policies again. Returns why they forbid moving `bundle` to `destination` now, or None."""
        if self._snapshot is None:
            return Refusal(code=Code.POLICY_UNREADABLE, bundle=bundle, detail=self.current.unknown)
        snapshot = self._snapshot
        if namespace_of(bundle) not in snapshot.bundles.namespaces and snapshot.brokers.ids:
            # No broker reports a bundle of this namespace: an operator moves an idle bundle. Add it to the snapshot.
            snapshot = with_owned(snapshot, {snapshot.brokers.ids[0]: [bundle]})
        limits = limits_of(snapshot, await self.refresh(snapshot))
        if limits is None:
            return None
        names, column = snapshot.bundles.namespaces, snapshot.broker_row(destination)
        row = names.index(namespace_of(bundle)) if namespace_of(bundle) in names else -1
        if row < 0 or bool(limits.unknown[row]):
            return Refusal(code=Code.POLICY_UNREADABLE, bundle=bundle, detail=self.current.unknown)
        if row in limits.unmatched:
            detail = f"isolation policy {limits.unmatched[row]} matches no broker"
            return Refusal(code=Code.POLICY_WITHOUT_BROKERS, bundle=bundle, detail=detail)
        if column < 0 or not bool(limits.mask[row, column]):
            return Refusal(code=Code.POLICY_FORBIDS, bundle=bundle, detail=f"not to {destination}")
        return None


def _flag(settings: Mapping[str, str], key: str, *, default: bool) -> bool:
    return settings.get(key, str(default)).strip().lower() == "true"
