"""Settings of recalibration: history, proposed thresholds, and strategies to compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.uris import below, folder_named
from bundlekeel.planning.guard.scope import NAMESPACE, check_pattern
from bundlekeel.recalibration.rules.thresholds import AdoptionRules
from bundlekeel.settings.feature_checks import FeatureChecks, SettingWarning
from bundlekeel.settings.parameters import to_parameters
from bundlekeel.settings.types import Duration, InvalidSetting, Listed, Off, Place, Section, Strategy

if TYPE_CHECKING:
    from bundlekeel.settings.model import Settings


class HistorySettings(Section):
    """The record of each cycle's input and decision, for replay and for the nightly recalibration."""

    uri: Place | None = Field(
        default=None, description="store of the history, the same for all sidecars; null: no history"
    )
    wal: Path = Field(
        default=Path("bundlekeel-history"),
        description="local directory for unpublished minutes; each sidecar needs its own",
    )
    wal_max_bytes: int = Field(
        default=1 << 30,
        ge=1 << 20,
        description="beyond this unpublished size, cycles are not recorded until the store accepts files again",
    )
    keep_days: int | None = Field(
        default=35, ge=1, le=36_500, description="the leader deletes older files; null: keep all files"
    )


class CalibrationSettings(Section):
    """Thresholds that the nightly job proposes, and the conditions for adopting them."""

    mode: Annotated[Literal["off", "recommend", "adopt"], Off] = Field(
        default="off",
        description="off: proposals are not read; recommend: an operator adopts them; adopt: automatic adoption",
    )
    uri: Place | None = Field(
        default=None,
        description="store in which the job writes TIME/thresholds.json, the same for all sidecars; null: "
        "`calibration` below `history.uri`",
    )
    prefer: Literal["balance", "calm"] = Field(
        default="calm",
        description="calm: fewest seconds that clients lose, without worse balance; balance: best balance, without "
        "more of these seconds",
    )
    interval: Duration = Field(default=300.0, ge=1, le=86_400, description="time between two checks for a new proposal")
    max_steps: float = Field(
        default=4.0, gt=0, le=1000, description="largest change of a parameter per night, in steps of its range"
    )
    max_age: Duration = Field(default=129_600.0, ge=60, description="older proposals are not adopted")
    min_days: int = Field(default=7, ge=1, le=366, description="lowest number of days with usable history")
    min_coverage: float = Field(default=0.9, ge=0, le=1, description="lowest recorded share of the time")
    trial: Duration = Field(
        default=21_600.0,
        ge=0,
        le=86_400,
        description="duration of the trial after an adoption, which is reverted if worse than predicted; 0: no trial",
    )
    trial_namespaces: Annotated[tuple[str, ...], Listed] = Field(
        default=(),
        description="namespaces that use adopted thresholds first, with * and ? where wanted; empty: all immediately",
    )

    @field_validator("trial_namespaces")
    @classmethod
    def _check_namespaces(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            try:
                check_pattern(f"{NAMESPACE}:{name}")
            except ConfigError:
                text = f"{name!r} is not a namespace"
                raise InvalidSetting(text, allowed="tenant/namespace, with * and ? where wanted") from None
        return value

    @model_validator(mode="after")
    def _has_a_place(self) -> CalibrationSettings:
        if self.mode != "off" and self.uri is None:
            what = f"calibration.mode is {self.mode}, but neither history.uri nor calibration.uri is set"
            raise InvalidSetting(what, field="uri", allowed="history.uri, which the nightly job needs, or mode: off")
        return self


class ShadowSettings(Section):
    """Strategies that plan every cycle only for comparison with the strategy in use."""

    strategies: Annotated[tuple[Strategy, ...], Listed] = Field(
        default=(), description="names of strategies; metrics and history show their plans"
    )

    @field_validator("strategies")
    @classmethod
    def _once_each(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise InvalidSetting("the same strategy twice")
        return value


def with_proposals_below_history(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return raw settings with a default of `calibration.uri`, if calibration is on and there is history."""
    calibration, history = values.get("calibration"), values.get("history")
    uri = history.get("uri") if isinstance(history, Mapping) else None
    if not isinstance(calibration, Mapping) or not isinstance(uri, str) or not uri.strip():
        return dict(values)
    if calibration.get("uri") is not None or calibration.get("mode", "off") in ("off", False):
        return dict(values)
    return {**values, "calibration": {**calibration, "uri": below(uri, "calibration")}}


def adoption_rules(settings: Settings) -> AdoptionRules:
    """Return the conditions for adopting a proposal of the nightly job."""
    section = settings.section(CalibrationSettings)
    return AdoptionRules(
        max_steps=section.max_steps,
        max_age_seconds=section.max_age,
        min_days=section.min_days,
        min_coverage=section.min_coverage,
        cluster=settings.cluster,
    )


def warnings_of(settings: Settings) -> Iterator[SettingWarning]:
    """Yield a warning per value that has no effect because of another value."""
    strategy = _strategy_in_force(settings)
    if strategy in settings.section(ShadowSettings).strategies:
        yield SettingWarning(
            key="shadow.strategies",
            value=None,
            what=f"{strategy} is the strategy in force, and would be compared with itself",
            better="other strategies",
        )
    history = settings.section(HistorySettings)
    if history.uri is not None and folder_named(history.uri) and Path(folder_named(history.uri)) == history.wal:
        yield SettingWarning(
            key="history.uri",
            value=history.uri,
            what="the same folder as history.wal, which each sidecar needs for itself",
            better="a folder for all sidecars",
        )


def _strategy_in_force(settings: Settings) -> str:
    """Return the strategy that the settings select; "": the brokers' settings select it."""
    adopts = settings.adopt_broker_settings and "strategy" not in settings.model_fields_set
    return "" if adopts else to_parameters(settings).values.strategy


# Placed before the sidecar's section `notify`.
SECTIONS: Final = {"notify": {"history": HistorySettings, "calibration": CalibrationSettings, "shadow": ShadowSettings}}
CHECKS: Final = FeatureChecks(
    folders=("history.wal",),
    stores={"history.uri": "the sidecar", "calibration.uri": "the recalibration"},
    warnings=warnings_of,
    defaults=with_proposals_below_history,
)
