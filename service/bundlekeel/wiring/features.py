"""Parts that only some sidecars need: quotas, adaptive rate, history, shadow strategies and calibration."""

from __future__ import annotations

from dataclasses import dataclass

from bundlekeel.leader.cycle.cycle import CycleListener
from bundlekeel.leader.cycle.status import CycleStatus
from bundlekeel.leader.gate.gate import Gate
from bundlekeel.leader.gate.guard_state import list_moved_brokers
from bundlekeel.leader.runtime import Background
from bundlekeel.leader.state.effective_parameters import EffectiveParameters
from bundlekeel.pulsar.sources.rate_signals import RateSignals
from bundlekeel.quotas.service import QuotaService
from bundlekeel.quotas.wiring import quotas_of
from bundlekeel.recalibration.adopting.shadow import ShadowStrategies
from bundlekeel.recalibration.adopting.watcher import Calibration
from bundlekeel.recalibration.adopting.wiring import calibration, shadow_strategies
from bundlekeel.recalibration.recorder.recorder import Recorder
from bundlekeel.recalibration.wiring import recorder
from bundlekeel.wiring.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """One part per feature, None if the settings turn it off. Quotas and calibration respond even then."""

    quotas: QuotaService
    rate: RateSignals | None
    recorder: Recorder | None
    shadow_strategies: ShadowStrategies | None
    calibration: Calibration

    @property
    def listeners(self) -> list[CycleListener]:
        """The functions that each cycle calls at its end."""
        return [
            *([self.recorder.take] if self.recorder is not None else []),
            *([self.shadow_strategies.cycle_ended] if self.shadow_strategies is not None else []),
            self.calibration.cycle_ended,
        ]

    @property
    def tasks(self) -> list[Background]:
        """The tasks that run in parallel to the cycles."""
        tasks = [Background("quotas", self.quotas.quotas.run)]
        if self.rate is not None:
            tasks.append(Background("rate", self.rate.run))
        if self.recorder is not None:
            tasks.append(Background("history", self.recorder.run, self.recorder.close))
        if self.calibration.mode != "off":
            tasks.append(Background("calibration", self.calibration.run, self.calibration.close))
        if self.shadow_strategies is not None:
            tasks.append(Background("shadow", self.shadow_strategies.run, self.shadow_strategies.close))
        return tasks


def features(reading: Reading, status: CycleStatus, gate: Gate, parameters: EffectiveParameters) -> Features:
    """Create these parts. Raises ConfigError if pyarrow is missing and a setting needs it."""
    loaded, out = reading.loaded, reading.outside
    return Features(
        quotas=quotas_of(reading, status, gate),
        rate=_rate(reading, status),
        recorder=recorder(loaded, out.telemetry, out.clock, lambda: reading.leadership.leading),
        shadow_strategies=shadow_strategies(loaded, out.telemetry, out.clock),
        calibration=calibration(reading, status, gate, parameters),
    )


def _rate(reading: Reading, status: CycleStatus) -> RateSignals | None:
    """Return the adaptive rate, None if the settings turn it off."""
    section, clock = reading.loaded.settings.rate, reading.outside.clock
    if not section.adaptive:
        return None
    return RateSignals(
        reading.outside.admin,
        clock,
        picture=lambda: reading.observer.picture,
        concerned=lambda: list_moved_brokers(
            reading.shared_state.moves, clock.wall_ms() - int(2000 * section.interval)
        ),
        ceiling=lambda: status.params.max_moves_per_cycle,
        every_seconds=section.interval,
    )
