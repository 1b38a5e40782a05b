"""Base class `Feature`: what an optional feature can add to a sidecar.

The package `bundlekeel.NAME` of a feature contains an instance as `feature.FEATURE`. Its other modules with fixed names
add the rest (settings/features.py). Every command imports the module `feature`, so this module imports heavy modules
only in its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bundlekeel.cli.app import CommandModule

if TYPE_CHECKING:
    from bundlekeel.api.app import FeatureRoutes
    from bundlekeel.leader.cycle.cycle import CycleListener
    from bundlekeel.leader.cycle.status import CycleStatus
    from bundlekeel.leader.gate.gate import Gate
    from bundlekeel.leader.runtime import Background
    from bundlekeel.leader.state.effective_parameters import Adopt, EffectiveParameters
    from bundlekeel.leader.state.shared_state import SharedState
    from bundlekeel.ports import Coordination
    from bundlekeel.pulsar.admin import HttpBrokerAdmin
    from bundlekeel.settings.load import LoadedSettings
    from bundlekeel.wiring.clock import SystemClock
    from bundlekeel.wiring.outside import Outside
    from bundlekeel.wiring.reading import Reading


@dataclass(frozen=True, kw_only=True)
class FeatureParts:
    """The parts of a feature in one running sidecar.

    `service`: operations for the routes of the feature; None: it has no routes. `tasks`: functions that run in parallel
    to the cycles. `listeners`: functions that each cycle calls at its end. `limited`: takes namespaces, and returns
    those whose topics have rate limits: their bundles need a longer cool-down. `shadow`: returns results that the
    report of the next cycle will contain.
    """

    service: object = None
    tasks: Sequence[Background] = ()
    listeners: Sequence[CycleListener] = ()
    limited: Callable[[frozenset[str]], frozenset[str]] = lambda _: frozenset()
    shadow: Callable[[], Mapping[str, Any]] = dict


class Feature:
    """An optional feature. A subclass overrides the methods for the parts that it adds; by default it adds nothing."""

    name: ClassVar[str]
    commands: ClassVar[Sequence[CommandModule]] = ()

    def routes(self) -> FeatureRoutes | None:
        """Return the routes that the feature adds to the API; None: it adds no routes."""
        return None

    def adapters(self, loaded: LoadedSettings, admin: HttpBrokerAdmin, clock: SystemClock) -> Any:
        """Return the feature's clients of other systems, not connected yet. They become `Outside.adapters[NAME]`.

        Raises ConfigError if a setting or file cannot be used.
        """

    def adopted(self, loaded: LoadedSettings, shared_state: SharedState) -> Adopt | None:
        """Return a function that returns strategy thresholds, which override the settings now; None: none."""
        return None

    def parts(self, reading: Reading, status: CycleStatus, gate: Gate, parameters: EffectiveParameters) -> FeatureParts:
        """Return the parts of the feature in a sidecar. Raises ConfigError if a setting needs a missing library."""
        return FeatureParts()

    async def check_documents(self, coordination: Coordination) -> None:
        """Read the documents of the feature for `doctor`. Raises StoreError if one cannot be read."""

    async def forbid_uninstall(self, coordination: Coordination) -> None:
        """Raise Conflict if the shared state has the only copy of values that must be restored at the brokers."""

    async def preview_handback(self, out: Outside) -> list[str]:
        """Return what `hand_back` would restore, as messages for the operator."""
        return []

    async def hand_back(
        self, loaded: LoadedSettings, out: Outside, *, taken_over: bool, reason: str, by: str
    ) -> list[str]:
        """Restore the values at brokers that the feature changed. Returns messages for the operator.

        `taken_over`: whether a takeover just ended, too; its record then stops a leader that still runs.
        """
        return []
