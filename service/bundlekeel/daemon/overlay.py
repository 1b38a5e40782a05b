"""Where adopted thresholds meet the settings: the one place every plan takes its parameters from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bundlekeel.core.adoption import Adopted, in_force, overlay
from bundlekeel.core.params import Parameters
from bundlekeel.core.thresholds import Number


class Overlay:
    """The parameters of every plan: settings and brokers' settings merged, and over them what was adopted."""

    def __init__(
        self, settings: Callable[[Mapping[str, str]], Parameters], adopted: Callable[[], Adopted | None]
    ) -> None:
        self._settings = settings
        self._adopted = adopted
        self.base = settings({})

    def __call__(self, broker_settings: Mapping[str, str]) -> Parameters:
        """See `cycle_parts.CycleParts.parameters`."""
        self.base = self._settings(broker_settings)
        return in_force(self.base, self._adopted())

    @property
    def current(self) -> Parameters:
        """What is in force now, or with the next cycle."""
        return in_force(self.base, self._adopted())

    @property
    def values(self) -> dict[str, Number]:
        """What lies over the settings now, by parameter."""
        return overlay(self.base, self._adopted())

    def described(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of the effective settings (daemon/settings_describe.py), with adopted values where they are in force."""
        laid = {f"parameters.{name}": value for name, value in self.values.items()}
        return [
            row | {"value": laid[row["key"]], "origin": "calibration"} if row["key"] in laid else row for row in rows
        ]
