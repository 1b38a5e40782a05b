"""Calibrated thresholds and shadow strategies of a sidecar, wired. pyarrow is loaded only where calibration is on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from bundlekeel.core.model.errors import ConfigError, StoreError
from bundlekeel.daemon.calibration.shadow import ShadowStrategies
from bundlekeel.daemon.calibration.watcher import Calibration, CalibrationParts
from bundlekeel.daemon.gate.gate import Gate
from bundlekeel.daemon.state.effective_parameters import EffectiveParameters, merging
from bundlekeel.daemon.state.shared_state import SharedState
from bundlekeel.ports import Clock, Journal, Telemetry
from bundlekeel.ports.calibration import CalibrationStore
from bundlekeel.settings.load import LoadedSettings


def effective_parameters_of(loaded: LoadedSettings, shared_state: SharedState) -> EffectiveParameters:
    """The parameters of every plan. With calibration off nothing that was adopted earlier is in force."""
    off = loaded.settings.calibration.mode == "off"
    return EffectiveParameters(merging(loaded), lambda: None if off else shared_state.desired.adopted)


def calibration(
    loaded: LoadedSettings,
    *,
    effective_parameters: EffectiveParameters,
    shared_state: SharedState,
    gate: Gate,
    sees: Callable[[], bool],
    journal: Journal,
    telemetry: Telemetry,
    clock: Clock,
) -> Calibration:
    """What answers for thresholds; it watches only where the settings say so."""
    given = loaded.settings.calibration
    return Calibration(
        CalibrationParts(
            mode=given.mode,
            rules=replace(given.rules, cluster=loaded.settings.cluster),
            every_seconds=given.interval,
            interval_seconds=loaded.settings.cycle.interval,
            canary_seconds=given.canary,
            store=_store(loaded),
            effective_parameters=effective_parameters,
            shared_state=shared_state,
            sees=sees,
            journal=journal,
            telemetry=telemetry,
            clock=clock,
            gate=gate,
        )
    )


def shadow_strategies(loaded: LoadedSettings, telemetry: Telemetry, clock: Clock) -> ShadowStrategies | None:
    """Strategies that plan along, or None when the settings name none."""
    named = loaded.settings.shadow.strategies
    return ShadowStrategies(named, telemetry, clock) if named else None


def _store(loaded: LoadedSettings) -> Callable[[], CalibrationStore]:
    """What opens the place of proposals. ConfigError when pyarrow is missing."""
    given = loaded.settings.calibration
    if given.mode == "off" or given.uri is None:
        return _nowhere
    try:
        adapter = import_module("bundlekeel.adapters.calibration")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ConfigError(
            "calibration needs pyarrow: pip install '.[history]' in the sources",
            field="calibration.mode",
            allowed="off",
        ) from None
    place: str | Path | None = given.uri if "://" in given.uri else loaded.located(Path(given.uri))

    def opened() -> CalibrationStore:
        store: CalibrationStore = adapter.calibration_folder(place)
        return store

    return opened


def _nowhere() -> CalibrationStore:
    raise StoreError("calibration is off")
