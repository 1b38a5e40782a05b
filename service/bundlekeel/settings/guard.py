"""Settings of the guard beside its parameters: maintenance windows and the adaptive rate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import Field, field_validator

from bundlekeel.settings.types import AllowedWords, Duration, InvalidSetting, Section

WINDOWS_WORDS = AllowedWords("list of windows {cron, time_zone, minutes, allow}")


class WindowSettings(Section):
    """A time in which bundles may, or may not, be moved."""

    cron: str = Field(description="when it opens: minute hour day-of-month month day-of-week, as in crontab")
    time_zone: str = Field(default="UTC", description="IANA name, such as Europe/Berlin; its clock changes are heeded")
    minutes: int = Field(ge=1, le=10_080, description="how long it stays open")
    allow: Literal["act", "overload", "nothing"] = Field(
        default="act", description="everything, only relief of overloaded brokers, or nothing while it is open"
    )

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, value: str) -> str:
        try:
            CronSim(value, datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise InvalidSetting(
                f"not a cron expression: {error}", allowed="five fields, such as 0 2 * * 1-5"
            ) from None
        if len(value.split()) != 5:
            raise InvalidSetting("windows open at whole minutes", allowed="five fields, such as 0 2 * * 1-5")
        return value

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InvalidSetting("not a known time zone", allowed="an IANA name, such as Europe/Berlin") from None
        return value


class RateSettings(Section):
    """Fewer moves when the brokers' clients fare worse after some (core/guard/rate.py)."""

    adaptive: bool = Field(
        default=False, description="halve the moves a cycle when clients fare worse, then one more at a time"
    )
    interval: Duration = Field(
        default=30.0, ge=5, le=3600, description="how often the brokers are asked how their clients fare"
    )


Windows = Annotated[tuple[WindowSettings, ...], WINDOWS_WORDS]
