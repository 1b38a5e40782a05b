"""Settings of traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from bundlekeel.settings.notify import is_http_url
from bundlekeel.settings.types import Duration, InvalidSetting, Section, Shown


class TraceSettings(Section):
    """Each cycle, its plan and its moves as an OpenTelemetry trace. Off by default; needs the extra `otel`."""

    otlp_endpoint: Annotated[str, Shown] | None = Field(
        default=None,
        description="where spans are sent by OTLP over HTTP, e.g. http://collector:4318/v1/traces; null: no traces",
    )
    timeout: Duration = Field(default=5.0, ge=0.1, le=60, description="until the collector must have answered")
    tls_trust_certs_file: Path | None = Field(default=None, description="PEM bundle; null takes the system's")

    @field_validator("otlp_endpoint")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and not is_http_url(value):
            raise InvalidSetting("not an http(s) address")
        return value
