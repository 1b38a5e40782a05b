"""Build the parts of recalibration in a sidecar: recorder, shadow strategies and calibrated thresholds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bundlekeel.leader.cycle.cycle import CycleListener
from bundlekeel.leader.cycle.status import CycleStatus
from bundlekeel.leader.gate.gate import Gate
from bundlekeel.leader.runtime import Background
from bundlekeel.leader.state.effective_parameters import Adopt, AdoptedParameters, EffectiveParameters
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.parameters import Parameters
from bundlekeel.ports import Clock, Telemetry
from bundlekeel.recalibration.adopting.proposals import proposals
from bundlekeel.recalibration.adopting.shadow import ShadowStrategies
from bundlekeel.recalibration.adopting.watcher import Calibration
from bundlekeel.recalibration.history.ports import CalibrationStore
from bundlekeel.recalibration.recorder.recorder import Recorder
from bundlekeel.recalibration.recorder.wiring import recorder
from bundlekeel.recalibration.rules.adoption import adopted_values, trial_values
from bundlekeel.recalibration.settings import CalibrationSettings, ShadowSettings, adoption_rules
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.feature import FeatureParts
from bundlekeel.wiring.reading import Reading

Proposals = Callable[[], Callable[[], CalibrationStore]]


@dataclass(frozen=True, kw_only=True)
class RecalibrationParts(FeatureParts):
    """The recorder, shadow strategies and watcher of proposals. A part is None if the settings turn it off."""

    recorder: Recorder | None
    shadow_strategies: ShadowStrategies | None
    calibration: Calibration


def adopted_of(loaded: LoadedSettings, shared_state: SharedState) -> Adopt:
    """Return a function that takes parameters and returns the adopted thresholds that override them. Its result is
    empty if calibration is off."""
    off = loaded.settings.section(CalibrationSettings).mode == "off"

    def adopt(base: Parameters) -> AdoptedParameters:
        adopted = None if off else shared_state.desired.adopted
        return AdoptedParameters(adopted_values(base, adopted), trial_values(base, adopted))

    return adopt


def adapters_of(loaded: LoadedSettings) -> Proposals:
    """Return a function that opens the store of proposed thresholds."""
    return partial(proposals, loaded)


def parts_of(reading: Reading, status: CycleStatus, gate: Gate, parameters: EffectiveParameters) -> RecalibrationParts:
    """Return the recorder, the shadow strategies and the watcher of proposals. Raises ConfigError if pyarrow is missing
    and a setting needs it."""
    loaded, out = reading.loaded, reading.outside
    record = recorder(loaded, out.telemetry, out.clock, lambda: reading.leadership.leading)
    shadow = shadow_strategies(loaded, out.telemetry, out.clock)
    watcher = calibration(reading, status, gate, parameters)
    tasks: list[Background] = []
    listeners: list[CycleListener] = []
    if record is not None:
        tasks.append(Background("history", record.run, record.close))
        listeners.append(record.take)
    if watcher.mode != "off":
        tasks.append(Background("calibration", watcher.run, watcher.close))
    if shadow is not None:
        tasks.append(Background("shadow", shadow.run, shadow.close))
        listeners.append(shadow.cycle_ended)
    listeners.append(watcher.cycle_ended)
    return RecalibrationParts(
        service=watcher,
        tasks=tasks,
        listeners=listeners,
        shadow=shadow.news if shadow is not None else dict,
        recorder=record,
        shadow_strategies=shadow,
        calibration=watcher,
    )


def calibration(reading: Reading, status: CycleStatus, gate: Gate, parameters: EffectiveParameters) -> Calibration:
    """Return the watcher of proposed thresholds, which reads them only if `calibration.mode` is not off. Raises
    ConfigError if pyarrow is missing."""
    settings, out = reading.loaded.settings, reading.outside
    section = settings.section(CalibrationSettings)
    return Calibration(
        mode=section.mode,
        rules=adoption_rules(settings),
        every_seconds=section.interval,
        interval_seconds=settings.cycle.interval,
        trial_seconds=section.trial,
        trial_namespaces=section.trial_namespaces,
        store=out.adapters["recalibration"](),
        effective_parameters=parameters,
        shared_state=reading.shared_state,
        no_picture=lambda: status.no_picture,
        journal=reading.journal,
        telemetry=out.telemetry,
        clock=out.clock,
        gate=gate,
    )


def shadow_strategies(loaded: LoadedSettings, telemetry: Telemetry, clock: Clock) -> ShadowStrategies | None:
    """Return the shadow strategies, which plan only for comparison; None if the settings name none."""
    names = loaded.settings.section(ShadowSettings).strategies
    return ShadowStrategies(names, telemetry, clock) if names else None
