"""History, shadow strategies and calibrated thresholds as a feature of the sidecar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bundlekeel.cli.app import CommandModule
from bundlekeel.wiring.feature import Feature, FeatureParts

if TYPE_CHECKING:
    from bundlekeel.api.app import FeatureRoutes
    from bundlekeel.leader.cycle.status import CycleStatus
    from bundlekeel.leader.gate.gate import Gate
    from bundlekeel.leader.state.effective_parameters import Adopt, EffectiveParameters
    from bundlekeel.leader.state.shared_state import SharedState
    from bundlekeel.pulsar.admin import HttpBrokerAdmin
    from bundlekeel.settings.load import LoadedSettings
    from bundlekeel.wiring.clock import SystemClock
    from bundlekeel.wiring.reading import Reading


class Recalibration(Feature):
    """Records history, compares strategies, and adopts the thresholds that the nightly job proposes."""

    name = "recalibration"
    commands = (
        CommandModule("Look", "recalibration.commands", "history", last=True),
        CommandModule("Intervene", "recalibration.threshold_commands", "thresholds"),
        CommandModule("Offline", "recalibration.commands", "replay"),
    )

    def adapters(self, loaded: LoadedSettings, admin: HttpBrokerAdmin, clock: SystemClock) -> Any:
        """Return a function that opens the store of proposed thresholds. Only sidecars call that function: it needs
        pyarrow."""
        from bundlekeel.recalibration.wiring import adapters_of

        return adapters_of(loaded)

    def routes(self) -> FeatureRoutes:
        """Return the routes of `/api/v1/thresholds`."""
        from bundlekeel.recalibration.routes import ROUTES

        return ROUTES

    def adopted(self, loaded: LoadedSettings, shared_state: SharedState) -> Adopt:
        """Return a function that takes parameters and returns the adopted thresholds that override them."""
        from bundlekeel.recalibration.wiring import adopted_of

        return adopted_of(loaded, shared_state)

    def parts(self, reading: Reading, status: CycleStatus, gate: Gate, parameters: EffectiveParameters) -> FeatureParts:
        """Return the recorder, the shadow strategies and the watcher of proposed thresholds."""
        from bundlekeel.recalibration.wiring import parts_of

        return parts_of(reading, status, gate, parameters)


FEATURE = Recalibration()
