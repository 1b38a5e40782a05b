"""Settings of what the nightly recalibration proposes, and of shadow strategies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from bundlekeel.core.calibration.thresholds import AdoptionRules
from bundlekeel.settings.types import Duration, InvalidSetting, Place, Section, Strategy


class CalibrationSettings(Section):
    """Thresholds that the nightly job proposes: whether they are looked at, and when they may come into force."""

    mode: Literal["off", "recommend", "adopt"] = Field(
        default="off",
        description="off: neither read nor in force; recommend: shown, people adopt; adopt: comes into force by itself",
    )
    uri: Place | None = Field(
        default=None, description="where the job leaves DATE/thresholds.json, for all sidecars the same"
    )
    interval: Duration = Field(default=300.0, ge=1, le=86_400, description="how often a new proposal is looked for")
    max_steps: float = Field(
        default=4.0, gt=0, le=1000, description="how far one night may take a parameter, in steps of its range"
    )
    max_age: Duration = Field(default=129_600.0, ge=60, description="older proposals do not come into force")
    min_days: int = Field(default=7, ge=1, le=366, description="fewer days of usable history are too few")
    min_coverage: float = Field(default=0.9, ge=0, le=1, description="recorded share of the time, at least")
    canary: Duration = Field(
        default=21_600.0,
        ge=0,
        le=86_400,
        description="how long what was adopted is watched while acting, and reverted if worse than promised; 0: never",
    )

    @property
    def rules(self) -> AdoptionRules:
        """When a proposal may come into force."""
        return AdoptionRules(
            max_steps=self.max_steps,
            max_age_seconds=self.max_age,
            min_days=self.min_days,
            min_coverage=self.min_coverage,
        )

    @model_validator(mode="after")
    def _has_a_place(self) -> CalibrationSettings:
        if self.mode != "off" and self.uri is None:
            raise InvalidSetting("calibration.mode is not off, so there must be a place", field="uri")
        return self


class ShadowSettings(Section):
    """Strategies that plan every cycle along with the one in force, and are only compared with it."""

    strategies: tuple[Strategy, ...] = Field(
        default=(), description="names of strategies; what they would have done is in metrics and history"
    )

    @field_validator("strategies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        return value

    @field_validator("strategies")
    @classmethod
    def _once_each(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise InvalidSetting("the same strategy twice")
        return value
