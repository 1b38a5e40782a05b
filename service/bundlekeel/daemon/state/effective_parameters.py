"""The parameters in force, and whence each one came: the one place that plans, the API, the page and the CLI go by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from bundlekeel.core.calibration.adoption import Adopted, in_force, overlay
from bundlekeel.core.calibration.thresholds import Number
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.daemon.state import partial_takeover as canary
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.parameters import Merged, to_parameters

# What brokers run with, under Pulsar's keys -> the settings merged with it.
Merge = Callable[[Mapping[str, str]], Merged]


def merging(loaded: LoadedSettings, *, adopts: bool | None = None) -> Merge:
    """These settings, to be merged with what brokers run with. `adopts`: instead of their `adopt_broker_settings`."""
    settings = loaded.settings
    if adopts is not None:
        settings = settings.model_copy(update={"adopt_broker_settings": adopts})
    return partial(to_parameters, settings, origins=loaded.origins)


class Overlay:
    """Settings and brokers' settings merged, over them what was adopted, and over all the scope of a takeover."""

    def __init__(self, merge: Merge, adopted: Callable[[], Adopted | None]) -> None:
        # May be replaced at any time (daemon/operations/reload.py): the next cycle goes by it.
        self.merge = merge
        self._adopted = adopted
        self._namespaces: tuple[str, ...] = ()
        self._merged = merge({})

    def __call__(self, brokers: Mapping[str, str], namespaces: tuple[str, ...]) -> Parameters:
        """See `cycle_parts.CycleParts.parameters`."""
        self._namespaces = namespaces
        self._merged = self.merge(canary.adopted(brokers, namespaces))
        return self.current

    @property
    def base(self) -> Parameters:
        """What would be in force if nothing were adopted and everything taken over."""
        return self._merged.values

    @property
    def current(self) -> Parameters:
        """What is in force now, or with the next cycle."""
        return canary.scoped(in_force(self.base, self._adopted()), self._namespaces)

    @property
    def values(self) -> dict[str, Number]:
        """What was adopted and is in force now, by parameter."""
        return overlay(self.base, self._adopted())

    @property
    def effective(self) -> Merged:
        """What is in force, with its origins; those of ours are `calibration` and `takeover`."""
        origins = {**self._merged.origins, **dict.fromkeys(self.values, "calibration")}
        return Merged(self.current, origins | ({"included_namespaces": "takeover"} if self._namespaces else {}))
