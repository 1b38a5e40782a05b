"""Quota groups as an optional feature of the sidecar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bundlekeel.cli.app import CommandModule
from bundlekeel.wiring.feature import Feature, FeatureParts

if TYPE_CHECKING:
    from bundlekeel.api.app import FeatureRoutes
    from bundlekeel.leader.cycle.status import CycleStatus
    from bundlekeel.leader.gate.gate import Gate
    from bundlekeel.leader.state.effective_parameters import EffectiveParameters
    from bundlekeel.ports import Coordination
    from bundlekeel.pulsar.admin import HttpBrokerAdmin
    from bundlekeel.quotas.cycle import QuotaAdapters
    from bundlekeel.settings.load import LoadedSettings
    from bundlekeel.wiring.clock import SystemClock
    from bundlekeel.wiring.outside import Outside
    from bundlekeel.wiring.reading import Reading


class QuotaFeature(Feature):
    """Groups of tenants and namespaces that share rates over all brokers (PIP-82)."""

    name = "quotas"
    commands = (CommandModule("Look", "quotas.commands", "quota"),)

    def routes(self) -> FeatureRoutes:
        """Return the routes of `/api/v1/quotas`."""
        from bundlekeel.quotas.routes import ROUTES

        return ROUTES

    def adapters(self, loaded: LoadedSettings, admin: HttpBrokerAdmin, clock: SystemClock) -> QuotaAdapters:
        """Return the client that reads and writes rates, and the reader of the usage that brokers publish."""
        from bundlekeel.quotas.wiring import adapters_of

        return adapters_of(loaded, admin, clock)

    def parts(self, reading: Reading, status: CycleStatus, gate: Gate, parameters: EffectiveParameters) -> FeatureParts:
        """Return the service of quota groups, and the cycle that enforces them."""
        from bundlekeel.quotas.wiring import parts_of

        return parts_of(reading, status, gate)

    async def check_documents(self, coordination: Coordination) -> None:
        """Raise StoreError if the record of the limits that Bundlekeel set cannot be read."""
        from bundlekeel.quotas.enforcing.owned_limits import check_documents

        await check_documents(coordination)

    async def forbid_uninstall(self, coordination: Coordination) -> None:
        """Raise Conflict while brokers have rates or ResourceGroups that Bundlekeel set."""
        from bundlekeel.quotas.uninstall import forbid_uninstall

        await forbid_uninstall(coordination)

    async def preview_handback(self, out: Outside) -> list[str]:
        """Return messages for the operator: how many rates and ResourceGroups a handback would restore."""
        from bundlekeel.quotas.enforcing.restore import quotas_owned

        return await quotas_owned(out.coordination)

    async def hand_back(
        self, loaded: LoadedSettings, out: Outside, *, taken_over: bool, reason: str, by: str
    ) -> list[str]:
        """Restore rates and ResourceGroups from before the quota groups. Returns messages for the operator."""
        from bundlekeel.quotas.wiring import hand_back

        return await hand_back(loaded, out, taken_over=taken_over, reason=reason, by=by)


FEATURE = QuotaFeature()
