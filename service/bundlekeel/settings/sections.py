"""Sections of the settings: windows, adaptive rate, counters, calibration, notifications, traces, history."""

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
    Listed,
    Off,
    Place,
    Section,
    Shown,
    Strategy,
    http_address,
)

WINDOWS_WORDS = AllowedWords("list of windows {cron, time_zone, minutes, allow}")


class WindowSettings(Section):
    """A time in which bundles may, or may not, be moved."""

    cron: str = Field(description="when it opens: minute hour day-of-month month day-of-week, as in crontab")
    time_zone: str = Field(
        default="UTC", description="IANA name, such as Europe/Berlin; daylight saving time is observed"
    )
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
    """Fewer moves when latency or errors of clients rise after moves."""

    adaptive: bool = Field(
        default=False,
        description="halve the moves a cycle when latency or errors of clients rise, then add one at a time",
    )
    interval: Duration = Field(
        default=30.0,
        ge=5,
        le=3600,
        description="how often the brokers are asked for latency and errors of their clients",
    )


Windows = Annotated[tuple[WindowSettings, ...], WINDOWS_WORDS]


WEBHOOKS_WORDS = AllowedWords(
    "list of webhooks {name, url or url_file, kind, events, min_severity, timeout, tls_trust_certs_file, use_proxy}"
)


class WebhookSettings(Section):
    """One receiver. Its address is a secret: it allows to post there."""

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
    timeout: Duration = Field(default=5.0, ge=0.1, le=60, description="time limit of a request")
    tls_trust_certs_file: Path | None = Field(default=None, description="PEM bundle; null takes the system's")
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
    """Receivers of notifications of executions, stops, findings and adoptions. None by default."""

    webhooks: Annotated[tuple[WebhookSettings, ...], WEBHOOKS_WORDS] = Field(
        default=(), description="receivers of JSON over HTTP; the address of each is a secret"
    )
    kubernetes: Annotated[Literal["off", "auto"], Off] = Field(
        default="off", description="auto: events of this pod as well, when it has a service account token"
    )

    @field_validator("webhooks")
    @classmethod
    def _names_differ(cls, value: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
        return _unlike(value)


class TraceSettings(Section):
    """Each cycle, its plan and its moves as an OpenTelemetry trace. Off by default; needs the extra `otel`."""

    otlp_endpoint: Annotated[str, Shown, Http] | None = Field(
        default=None,
        description="where spans are sent by OTLP over HTTP, e.g. http://collector:4318/v1/traces; null: no traces",
    )
    timeout: Duration = Field(default=5.0, ge=0.1, le=60, description="time limit of a request")
    tls_trust_certs_file: Path | None = Field(default=None, description="PEM bundle; null takes the system's")


class HistorySettings(Section):
    """The record of what every cycle saw and decided, for replay and for the nightly recalibration."""

    uri: Place | None = Field(
        default=None, description="where history is kept; the same for all sidecars; null records nothing"
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


class CountersSettings(Section):
    """The counters of brokers' topics, read beside their reports: those are of the last two minutes when they are
    written, and are written anew only when a load changed by 10 %, else after 15 minutes; these tell what is carried
    now. The leader alone reads them."""

    source: Annotated[Literal["brokers", "prometheus", "off"], Off] = Field(
        default="brokers",
        description="brokers: the page that Prometheus scrapes (`/metrics/`) of each broker; prometheus: what your"
        " Prometheus scraped (`prometheus.url`); off: reports only",
    )
    interval: Duration = Field(
        default=15.0,
        ge=1,
        le=3600,
        description="how often a broker is read while loads do not change; a large page less often",
    )
    quick_interval: Duration = Field(
        default=3.0, ge=1, le=60, description="how often while something changes: a new leader, a broker, moves, a load"
    )
    max_topics: int = Field(
        default=300_000,
        ge=0,
        le=100_000_000,
        description="with more topics in all brokers only reports are used: reading would take too long",
    )
    extensible: bool = Field(
        default=True,
        description="read extensible brokers too, in mode `act` while none sheds by itself; each reading advances their"
        " own averages",
    )


class PrometheusSettings(Section):
    """Your Prometheus, where brokers' counters are read with `counters.source: prometheus`."""

    url: Annotated[str, Shown, Http, AllowedWords("http(s)://host[:port][/path]")] | None = Field(
        default=None, description="its address, below which /api/v1 is"
    )
    labels: dict[str, str] = Field(
        default_factory=dict,
        description="labels that all series of this cluster's brokers have, such as {cluster: eu-1}",
    )
    broker_label: str = Field(
        default="instance",
        pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$",
        description="the label that identifies brokers; its values are host:port, hosts, pods' names or addresses",
    )
    window: Duration = Field(
        default=120.0, ge=5, le=3600, description="how far back scrapes are looked for: at least two scrape intervals"
    )
    timeout: Duration = Field(default=10.0, ge=0.1, le=60, description="time limit of a request")
    token: SecretStr | None = Field(default=None, description="bearer token; better kept in token_file or a secret")
    token_file: Path | None = Field(default=None, description="file with the token, read again when it changes")
    tls_trust_certs_file: Path | None = Field(default=None, description="PEM bundle; null takes the system's")
    tls_verify: bool = Field(default=True, description="check its certificate and host name")

    @model_validator(mode="after")
    def _one_token(self) -> PrometheusSettings:
        if self.token is not None and self.token_file is not None:
            raise InvalidSetting("give token or token_file, not both", field="token_file")
        return self


class CalibrationSettings(Section):
    """Thresholds that the nightly job proposes: whether they are looked at, and when they may come into force."""

    mode: Annotated[Literal["off", "recommend", "adopt"], Off] = Field(
        default="off",
        description="off: not read; recommend: shown, a person adopts it; adopt: comes into force automatically",
    )
    uri: Place | None = Field(
        default=None, description="where the job writes DATE/thresholds.json; the same for all sidecars"
    )
    interval: Duration = Field(default=300.0, ge=1, le=86_400, description="how often a new proposal is looked for")
    max_steps: float = Field(
        default=4.0, gt=0, le=1000, description="how far one night may take a parameter, in steps of its range"
    )
    max_age: Duration = Field(default=129_600.0, ge=60, description="older proposals do not come into force")
    min_days: int = Field(default=7, ge=1, le=366, description="fewer days of usable history are too few")
    min_coverage: float = Field(default=0.9, ge=0, le=1, description="recorded share of the time, at least")
    trial: Duration = Field(
        default=21_600.0,
        ge=0,
        le=86_400,
        description="how long adopted thresholds are watched; reverted if worse than predicted; 0: no trial",
    )

    @model_validator(mode="after")
    def _has_a_place(self) -> CalibrationSettings:
        if self.mode != "off" and self.uri is None:
            allowed = "the folder or URI that the nightly job writes to, or mode: off"
            raise InvalidSetting(f"calibration.mode is {self.mode}, but uri is not set", field="uri", allowed=allowed)
        return self


class ShadowSettings(Section):
    """Strategies that plan every cycle along with the one in force, and are only compared with it."""

    strategies: Annotated[tuple[Strategy, ...], Listed] = Field(
        default=(), description="names of strategies; what they would have done is in metrics and history"
    )

    @field_validator("strategies")
    @classmethod
    def _once_each(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise InvalidSetting("the same strategy twice")
        return value
