"""Calibrated thresholds and shadow strategies, if the settings enable them."""

from __future__ import annotations

from bundlekeel.leader.cycle.status import CycleStatus
from bundlekeel.leader.gate.gate import Gate
from bundlekeel.leader.state.effective_parameters import EffectiveParameters, merging
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.ports import Clock, Telemetry
from bundlekeel.recalibration.adopting.shadow import ShadowStrategies
from bundlekeel.recalibration.adopting.watcher import Calibration
from bundlekeel.recalibration.rules.adoption import adopted_values
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.reading import Reading


def effective_parameters_of(loaded: LoadedSettings, shared_state: SharedState) -> EffectiveParameters:
    """Return the parameters of every plan. With calibration off, thresholds adopted earlier have no effect."""
    off = loaded.settings.calibration.mode == "off"
    return EffectiveParameters(
        merging(loaded), lambda base: {} if off else adopted_values(base, shared_state.desired.adopted)
    )


def calibration(reading: Reading, status: CycleStatus, gate: Gate, parameters: EffectiveParameters) -> Calibration:
    """Return the service of thresholds, which reads proposals only if `calibration.mode` is not off. Raises ConfigError
    if pyarrow is missing."""
    settings, out = reading.loaded.settings, reading.outside
    section = settings.calibration
    return Calibration(
        mode=section.mode,
        rules=settings.adoption_rules,
        every_seconds=section.interval,
        interval_seconds=settings.cycle.interval,
        trial_seconds=section.trial,
        store=out.proposals(),
        effective_parameters=parameters,
        shared_state=reading.shared_state,
        no_picture=lambda: status.no_picture,
        journal=reading.journal,
        telemetry=out.telemetry,
        clock=out.clock,
        gate=gate,
    )


def shadow_strategies(loaded: LoadedSettings, telemetry: Telemetry, clock: Clock) -> ShadowStrategies | None:
    """Return the strategies that are only compared, None if the settings name none."""
    names = loaded.settings.shadow.strategies
    return ShadowStrategies(names, telemetry, clock) if names else None
