"""The parameters in effect and their origins, for plans, API, page and CLI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from bundlekeel.leader.state.partial_takeover import adopted, scoped
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.trial import TrialParameters
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.parameters import MergedParameters, to_parameters

# Returns the parameters from the settings file and from the brokers' settings, which it receives by Pulsar's keys.
Merge = Callable[[Mapping[str, str]], MergedParameters]


class AdoptedParameters(NamedTuple):
    """Adopted thresholds. `values`: override the settings, by parameter. `trial`: some namespaces try these first."""

    values: Mapping[str, float | int] = {}
    trial: TrialParameters | None = None


# Receives the merged parameters, and returns the adopted thresholds.
Adopt = Callable[[Parameters], AdoptedParameters]


def merging(loaded: LoadedSettings, *, adopts: bool | None = None) -> Merge:
    """Return a function that merges the settings file and the brokers' settings.

    `adopts`: replaces the setting `adopt_broker_settings`; None: that setting applies."""
    settings = loaded.settings
    if adopts is not None:
        settings = settings.model_copy(update={"adopt_broker_settings": adopts})
    return partial(to_parameters, settings, origins=loaded.origins)


class EffectiveParameters:
    """Merges settings and brokers' settings, then applies adopted thresholds and the limits of a partial takeover."""

    def __init__(self, merge: Merge, adopt: Adopt | None) -> None:
        # May be replaced at any time (requests/reload.py). The next cycle uses the new function.
        self.merge = merge
        self._adopt = adopt or (lambda _base: AdoptedParameters())
        self._namespaces: tuple[str, ...] = ()
        self._merged = merge({})

    def __call__(self, brokers: Mapping[str, str], namespaces: tuple[str, ...]) -> Parameters:
        """Return the parameters for brokers' settings and the namespaces of a partial takeover."""
        self._namespaces = namespaces
        self._merged = self.merge(adopted(brokers, namespaces))
        return self.current

    @property
    def base(self) -> Parameters:
        """The parameters without adopted thresholds and without the limits of a partial takeover."""
        return self._merged.values

    @property
    def current(self) -> Parameters:
        """The parameters in effect now. After a change, cycles use them from the next cycle."""
        overrides: Mapping[str, Any] = self.values
        return scoped(replace(self.base, **overrides) if overrides else self.base, self._namespaces)

    @property
    def values(self) -> dict[str, float | int]:
        """Adopted thresholds that are in effect now, by parameter."""
        return dict(self._adopt(self.base).values)

    @property
    def trial(self) -> TrialParameters | None:
        """Adopted thresholds that some namespaces try now; None: no namespace."""
        return self._adopt(self.base).trial

    @property
    def effective(self) -> MergedParameters:
        """Return the parameters in effect with their origins, which include `calibration` and `takeover`."""
        origins = {**self._merged.origins, **dict.fromkeys(self.values, "calibration")}
        return MergedParameters(
            self.current, origins | ({"included_namespaces": "takeover"} if self._namespaces else {})
        )
