"""The parameters in force, and where each one is from: the one source of plans, the API, the page and the CLI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from bundlekeel.core.calibration.adoption import Adopted, adopted_values, in_force
from bundlekeel.core.calibration.thresholds import Number
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.daemon.state.partial_takeover import adopted, scoped
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.parameters import MergedParameters, to_parameters

# What brokers run with, under Pulsar's keys -> the settings merged with it.
Merge = Callable[[Mapping[str, str]], MergedParameters]


def merging(loaded: LoadedSettings, *, adopts: bool | None = None) -> Merge:
    """These settings, to be merged with what brokers run with. `adopts`: instead of their `adopt_broker_settings`."""
    settings = loaded.settings
    if adopts is not None:
        settings = settings.model_copy(update={"adopt_broker_settings": adopts})
    return partial(to_parameters, settings, origins=loaded.origins)


class EffectiveParameters:
    """Settings and brokers' settings merged, over them what was adopted, and over all the scope of a takeover."""

    def __init__(self, merge: Merge, adopted: Callable[[], Adopted | None]) -> None:
        # May be replaced at any time (daemon/operations/reload.py): the next cycle goes by it.
        self.merge = merge
        self._adopted = adopted
        self._namespaces: tuple[str, ...] = ()
        self._merged = merge({})

    def __call__(self, brokers: Mapping[str, str], namespaces: tuple[str, ...]) -> Parameters:
        """See `cycle.parts.CycleParts.parameters`."""
        self._namespaces = namespaces
        self._merged = self.merge(adopted(brokers, namespaces))
        return self.current

    @property
    def base(self) -> Parameters:
        """What would be in force if nothing were adopted and everything taken over."""
        return self._merged.values

    @property
    def current(self) -> Parameters:
        """What is in force now, or with the next cycle."""
        return scoped(in_force(self.base, self._adopted()), self._namespaces)

    @property
    def values(self) -> dict[str, Number]:
        """What was adopted and is in force now, by parameter."""
        return adopted_values(self.base, self._adopted())

    @property
    def effective(self) -> MergedParameters:
        """What is in force, with its origins; those of ours are `calibration` and `takeover`."""
        origins = {**self._merged.origins, **dict.fromkeys(self.values, "calibration")}
        return MergedParameters(
            self.current, origins | ({"included_namespaces": "takeover"} if self._namespaces else {})
        )
