"""Sections of the settings: windows, adaptive rate, counters, notifications, traces."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import Field, SecretStr, field_validator, model_validator

from bundlekeel.ports.records import EVENTS, Event, Severity
from bundlekeel.settings.types import (
    AllowedWords,
    Duration,
    Http,
    InvalidSetting,
    Off,
    Section,
    Shown,
    http_address,
)

WINDOWS_WORDS = AllowedWords("list of windows {cron, time_zone, minutes, allow}")


class WindowSettings(Section):
    """A period in which moves are allowed or forbidden."""

    cron: str = Field(description="opening time: minute hour day-of-month month day-of-week, as in crontab")
    time_zone: str = Field(
        default="UTC", description="IANA name, such as Europe/Berlin; daylight saving time is observed"
    )
    minutes: int = Field(ge=1, le=10_080, description="duration of the window")
    allow: Literal["act", "overload", "nothing"] = Field(
        default="act", description="allowed moves while it is open: all, only from overloaded brokers, or none"
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
    """Reduces the number of moves if clients' latency or errors rise after moves."""

    adaptive: bool = Field(
        default=False,
        description="halve the moves per cycle when clients' latency or errors rise, then increase them one by one",
    )
    interval: Duration = Field(
        default=30.0,
        ge=5,
        le=3600,
        description="time between two reads of clients' latency and errors from the brokers",
    )


Windows = Annotated[tuple[WindowSettings, ...], WINDOWS_WORDS]


WEBHOOKS_WORDS = AllowedWords(
    "list of webhooks {name, url or url_file, kind, events, min_severity, timeout, tls_trust_certs_file, use_proxy}"
)


class WebhookSettings(Section):
    """A receiver of notifications. Its address is a secret, because it allows posting."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        max_length=63,
        description="name in metrics and logs, instead of the address",
    )
    url: SecretStr | None = Field(default=None, description="http(s) address; url_file is safer")
    url_file: Path | None = Field(default=None, description="file with the address, re-read for each notification")
    kind: Literal["generic", "slack"] = Field(default="generic", description="format of the body")
    events: tuple[Event, ...] = Field(default=EVENTS, description="events to send")
    min_severity: Severity = Field(default="info", description="lowest severity to send")
    timeout: Duration = Field(default=5.0, ge=0.1, le=60, description="time limit of a request")
    tls_trust_certs_file: Path | None = Field(
        default=None, description="PEM file of trusted certificates; null: the system's"
    )
    use_proxy: bool = Field(default=False, description="use HTTPS_PROXY and NO_PROXY of the environment")

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            http_address(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _one_address(self) -> WebhookSettings:
        if (self.url is None) == (self.url_file is None):
            raise InvalidSetting("give exactly one of url and url_file", field="url_file", allowed=None)
        return self


def _unlike(value: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
    names = [item.name for item in value]
    if len(set(names)) < len(names):
        raise InvalidSetting("two webhooks have the same name")
    return value


class NotifySettings(Section):
    """Receivers of notifications: executions, stops, findings and adoption of thresholds. None by default."""

    webhooks: Annotated[tuple[WebhookSettings, ...], WEBHOOKS_WORDS] = Field(
        default=(), description="receivers of JSON over HTTP; their addresses are secrets"
    )
    kubernetes: Annotated[Literal["off", "auto"], Off] = Field(
        default="off", description="auto: also create events of this pod, if it has a service account token"
    )

    @field_validator("webhooks")
    @classmethod
    def _names_differ(cls, value: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
        return _unlike(value)


class TraceSettings(Section):
    """OpenTelemetry traces of cycles, plans and moves. Off by default; needs the extra `otel`."""

    otlp_endpoint: Annotated[str, Shown, Http] | None = Field(
        default=None,
        description="OTLP/HTTP address for spans, such as http://collector:4318/v1/traces; null: no traces",
    )
    timeout: Duration = Field(default=5.0, ge=0.1, le=60, description="time limit of a request")
    tls_trust_certs_file: Path | None = Field(
        default=None, description="PEM file of trusted certificates; null: the system's"
    )


class CountersSettings(Section):
    """Counters of brokers' topics, read by the leader in addition to load reports.

    Counters show the present load. A report shows the last two minutes, and brokers write a new one only after a change
    of 10 %, else every 15 minutes."""

    source: Annotated[Literal["brokers", "prometheus", "off"], Off] = Field(
        default="brokers",
        description="brokers: the metrics page (`/metrics/`) of each broker; prometheus: your Prometheus"
        " (`prometheus.url`); off: only reports",
    )
    interval: Duration = Field(
        default=15.0,
        ge=1,
        le=3600,
        description="time between two reads of a broker while loads do not change; longer if its metrics page is large",
    )
    quick_interval: Duration = Field(
        default=3.0,
        ge=1,
        le=60,
        description="time between two reads after changes of the leader, brokers, bundle owners or loads",
    )
    network_file: Path | None = Field(
        default=None,
        description="file with byte counters of the network interfaces that this sidecar shares with one broker, such"
        " as `/proc/net/dev` in its pod. After a change of traffic, the leader reads all brokers early; null: not read",
    )
    max_topics: int = Field(
        default=300_000,
        ge=0,
        le=100_000_000,
        description="with more topics in the cluster only reports are used, because reading counters takes too long",
    )
    extensible: bool = Field(
        default=True,
        description="also read extensible brokers, in mode `act` while none sheds load itself; each read advances"
        " their own averages",
    )


class PrometheusSettings(Section):
    """Your Prometheus, the source of counters with `counters.source: prometheus`."""

    url: Annotated[str, Shown, Http, AllowedWords("http(s)://host[:port][/path]")] | None = Field(
        default=None, description="address of Prometheus, without /api/v1"
    )
    labels: dict[str, str] = Field(
        default_factory=dict,
        description="labels of all series of this cluster's brokers, such as {cluster: eu-1}",
    )
    broker_label: str = Field(
        default="instance",
        pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$",
        description="label that identifies brokers; its values are host:port, host names, pod names or addresses",
    )
    window: Duration = Field(
        default=120.0, ge=5, le=3600, description="age of the oldest scrapes to read: at least two scrape intervals"
    )
    timeout: Duration = Field(default=10.0, ge=0.1, le=60, description="time limit of a request")
    token: SecretStr | None = Field(default=None, description="bearer token; token_file or a secret is safer")
    token_file: Path | None = Field(default=None, description="file with the token, re-read when it changes")
    tls_trust_certs_file: Path | None = Field(
        default=None, description="PEM file of trusted certificates; null: the system's"
    )
    tls_verify: bool = Field(default=True, description="verify certificate and host name of Prometheus")

    @model_validator(mode="after")
    def _one_token(self) -> PrometheusSettings:
        if self.token is not None and self.token_file is not None:
            raise InvalidSetting("give token or token_file, not both", field="token_file")
        return self
