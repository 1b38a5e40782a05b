"""All installed optional features, and their parts in one sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bundlekeel.cli.app import CommandModule
from bundlekeel.settings.features import modules
from bundlekeel.wiring.feature import Feature, FeatureParts

if TYPE_CHECKING:
    from bundlekeel.api.app import FeatureRoutes
    from bundlekeel.leader.cycle.cycle import CycleListener
    from bundlekeel.leader.cycle.status import CycleStatus
    from bundlekeel.leader.gate.gate import Gate
    from bundlekeel.leader.runtime import Background
    from bundlekeel.leader.state.effective_parameters import Adopt, EffectiveParameters
    from bundlekeel.leader.state.shared_state import SharedState
    from bundlekeel.settings.load import LoadedSettings
    from bundlekeel.wiring.reading import Reading


@cache
def installed() -> tuple[Feature, ...]:
    """Return the installed features."""
    return tuple(module.FEATURE for module in modules("feature"))


def commands() -> list[CommandModule]:
    """Return the commands of the features."""
    return [module for feature in installed() for module in feature.commands]


def routes() -> list[FeatureRoutes]:
    """Return the routes of the features."""
    return [group for feature in installed() if (group := feature.routes()) is not None]


def adopted_of(loaded: LoadedSettings, shared_state: SharedState) -> Adopt | None:
    """Return a function that returns a feature's strategy thresholds, which override the settings now; None: none."""
    return next(filter(None, (feature.adopted(loaded, shared_state) for feature in installed())), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The parts of all features in one running sidecar, by the feature's name."""

    parts: Mapping[str, FeatureParts]

    @property
    def services(self) -> dict[str, object]:
        """Operations for the routes of each feature, by the feature's name."""
        return {name: parts.service for name, parts in self.parts.items() if parts.service is not None}

    @property
    def listeners(self) -> list[CycleListener]:
        """Functions of all features that each cycle calls at its end."""
        return [listener for parts in self.parts.values() for listener in parts.listeners]

    @property
    def tasks(self) -> list[Background]:
        """Tasks of all features that run in parallel to the cycles."""
        return [task for parts in self.parts.values() for task in parts.tasks]

    def limited(self, namespaces: frozenset[str]) -> frozenset[str]:
        """Return those of `namespaces` in which a feature limits the rates of topics."""
        return frozenset().union(*(parts.limited(namespaces) for parts in self.parts.values()))

    def shadow(self) -> dict[str, Any]:
        """Return the results of all features that the report of the next cycle will contain."""
        return {name: result for parts in self.parts.values() for name, result in parts.shadow().items()}


def features(reading: Reading, status: CycleStatus, gate: Gate, parameters: EffectiveParameters) -> Features:
    """Create the parts of all features. Raises ConfigError if a setting needs a missing library."""
    return Features(parts={feature.name: feature.parts(reading, status, gate, parameters) for feature in installed()})
