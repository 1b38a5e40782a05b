"""Settings of loads as they are now: counters of brokers' topics, read from the brokers or from Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from bundlekeel.settings.records import is_http_url
from bundlekeel.settings.types import AllowedWords, Duration, InvalidSetting, Section, Shown


class CountersSettings(Section):
    """The counters of brokers' topics, read beside their reports: those are up to two minutes old, these tell what is
    carried now. The leader alone reads them."""

    source: Literal["brokers", "prometheus", "off"] = Field(
        default="brokers",
        description="brokers: the page that Prometheus scrapes (`/metrics/`) of each broker; prometheus: what your"
        " Prometheus scraped (`prometheus.url`); off: reports only",
    )
    interval: Duration = Field(
        default=15.0, ge=1, le=3600, description="how often a broker is read while loads stay as they are"
    )
    quick_interval: Duration = Field(
        default=3.0, ge=1, le=60, description="how often while something changes: a new leader, a broker, moves, a load"
    )
    max_topics: int = Field(
        default=300_000,
        ge=0,
        le=100_000_000,
        description="of more topics in all brokers reports alone are used: reading them would take too long",
    )
    extensible: bool = Field(
        default=True,
        description="read extensible brokers too, in mode `act`; each reading advances their own averages",
    )


class PrometheusSettings(Section):
    """Your Prometheus, where brokers' counters are read with `counters.source: prometheus`."""

    url: Annotated[str, Shown, AllowedWords("http(s)://host[:port][/path]")] | None = Field(
        default=None, description="its address, below which /api/v1 is"
    )
    labels: dict[str, str] = Field(
        default_factory=dict, description="what all series of this cluster's brokers have, such as {cluster: eu-1}"
    )
    broker_label: str = Field(
        default="instance",
        pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$",
        description="the label that tells brokers apart; its values are host:port, hosts, pods' names or addresses",
    )
    window: Duration = Field(
        default=120.0, ge=5, le=3600, description="how far back scrapes are looked for: at least two scrape intervals"
    )
    timeout: Duration = Field(default=10.0, ge=0.1, le=60, description="until it must have answered")
    token: SecretStr | None = Field(default=None, description="bearer token; better kept in token_file or a secret")
    token_file: Path | None = Field(default=None, description="file with the token, read again when it changes")
    tls_trust_certs_file: Path | None = Field(default=None, description="PEM bundle; null takes the system's")
    tls_verify: bool = Field(default=True, description="check its certificate and host name")

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and not is_http_url(value):
            raise InvalidSetting("not an http(s) address")
        return value

    @model_validator(mode="after")
    def _one_token(self) -> PrometheusSettings:
        if self.token is not None and self.token_file is not None:
            raise InvalidSetting("give token or token_file, not both", field="token_file")
        return self
