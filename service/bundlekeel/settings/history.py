"""Settings of the history recorder."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from bundlekeel.settings.types import Place, Section


class HistorySettings(Section):
    """The record of what every cycle saw and decided, for replay and for the nightly recalibration."""

    uri: Place | None = Field(
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
