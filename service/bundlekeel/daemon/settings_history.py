"""Settings of the history recorder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from bundlekeel.daemon.settings_types import Refusal, Section, Words, is_place


class HistorySettings(Section):
    """The record of what every cycle saw and decided, for replay and for the nightly recalibration."""

    uri: Annotated[str, Words("a folder, or file://, s3://, gs://, hdfs://, abfss:// and so on")] | None = Field(
        default=None, description="where history is kept, for all sidecars the same; null records nothing"
    )
    wal: Path = Field(
        default=Path("bundlekeel-history"),
        description="folder on this machine for minutes not published yet; each sidecar needs its own",
    )
    wal_max_bytes: int = Field(
        default=1 << 30,
        ge=1 << 20,
        description="with more than this unpublished, cycles are no longer recorded until the store takes files again",
    )
    keep_days: int | None = Field(
        default=35, ge=1, le=36_500, description="older files are deleted by the leader; null keeps everything"
    )

    @field_validator("uri")
    @classmethod
    def _is_place(cls, value: str | None) -> str | None:
        if value is not None and not is_place(value):
            raise Refusal("neither a folder nor a URI with ://")
        return value
