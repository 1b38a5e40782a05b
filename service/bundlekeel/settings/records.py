"""Settings of what leaves the process: notifications, traces, history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from bundlekeel.ports.records import EVENTS, Event, Severity
from bundlekeel.settings.types import AllowedWords, Duration, InvalidSetting, Place, Section, Shown

WEBHOOKS_WORDS = AllowedWords(
    "list of webhooks {name, url or url_file, kind, events, min_severity, timeout, tls_trust_certs_file, use_proxy}"
)


class WebhookSettings(Section):
    """One receiver. Its address is a secret: whoever knows it can post there."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        max_length=63,
        description="in metrics and logs, instead of its address",
    )
    url: SecretStr | None = Field(default=None, description="http(s) address; better kept in url_file")
    url_file: Path | None = Field(default=None, description="file with the address, read again for each notification")
    kind: Literal["generic", "slack"] = Field(default="generic", description="the form of the body")
    events: tuple[Event, ...] = Field(default=EVENTS, description="what is notified")
    min_severity: Severity = Field(default="info", description="the least severity that is notified")
    timeout: Duration = Field(default=5.0, ge=0.1, le=60, description="until it must have answered")
    tls_trust_certs_file: Path | None = Field(default=None, description="PEM bundle; null takes the system's")
    use_proxy: bool = Field(default=False, description="heed HTTPS_PROXY and NO_PROXY of the environment")

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not is_http_url(value.get_secret_value()):
            raise InvalidSetting("not an http(s) address")
        return value

    @model_validator(mode="after")
    def _one_address(self) -> WebhookSettings:
        if (self.url is None) == (self.url_file is None):
            raise InvalidSetting("give exactly one of url and url_file", field="url_file")
        return self


def _unlike(value: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
    names = [item.name for item in value]
    if len(set(names)) < len(names):
        raise InvalidSetting("two webhooks have the same name")
    return value


class NotifySettings(Section):
    """Receivers of notifications of executions, stops, findings and adoptions. None by default."""

    webhooks: Annotated[tuple[WebhookSettings, ...], WEBHOOKS_WORDS] = Field(
        default=(), description="receivers of JSON over HTTP; the address of each is a secret"
    )
    kubernetes: Literal["off", "auto"] = Field(
        default="off", description="auto: events of this pod as well, when it has a service account token"
    )

    @field_validator("webhooks")
    @classmethod
    def _names_differ(cls, value: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
        return _unlike(value)


def is_http_url(text: str) -> bool:
    """Whether this is an absolute http or https address without spaces."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and text.isascii() and " " not in text


# Settings of traces.


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


# Settings of the history recorder.


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
