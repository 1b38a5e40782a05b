"""The settings of a sidecar as one frozen tree. The descriptions of the fields generate docs/reference/settings.md.

Durations are written as `10s`, `500ms`, `1m` or as seconds; fields contain seconds. `settings.load` reads the sources.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import check_pair, compat_defaults
from bundlekeel.settings.feature_checks import feature_checks
from bundlekeel.settings.features import with_features
from bundlekeel.settings.parameters import TOP_LEVEL, canonical, check_compat
from bundlekeel.settings.sections import (
    CountersSettings,
    NotifySettings,
    PrometheusSettings,
    RateSettings,
    TraceSettings,
    Windows,
)
from bundlekeel.settings.security import ApiAuthSettings, ApiTlsSettings, StoreSecuritySettings
from bundlekeel.settings.types import (
    AllowedWords,
    Compat,
    Duration,
    InvalidSetting,
    Listed,
    Listening,
    NeededStoreAddress,
    Off,
    Placement,
    Section,
    Shown,
    StoreAddress,
    Strategy,
    check_ports,
    together,
)

T = TypeVar("T", bound=Section)

# Heartbeats per session time-out, so that one late and one lost heartbeat do not end the leadership.
HEARTBEATS_PER_SESSION = 3
# Default time without a completed cycle after which the failsafe job acts.
FAILSAFE_AFTER = 600.0
# Cycles that must fit into this time, because a slow leader has not failed.
FAILSAFE_CYCLES = 3


class StoreSettings(StoreSecuritySettings):
    """Connection to the metadata store."""

    session_timeout: Duration = Field(
        default=10.0,
        ge=1,
        le=300,
        description="session time-out requested from ZooKeeper; a failed leader is replaced after about this time",
    )
    call_timeout: Duration = Field(default=3.0, ge=0.05, description="time-out of a single read or write")
    settle_after_outage: Duration = Field(
        default=180.0,
        ge=0,
        le=86_400,
        description="after an outage of the store, nothing moves until brokers are back and unchanged for this long",
    )
    batch_window: Duration = Field(
        default=0.2,
        ge=0,
        le=10,
        description="changes within this time are read together, so that a broker's start causes only one cycle",
    )
    max_report_bytes: int = Field(
        default=10_485_760,
        ge=1024,
        le=10_485_760,
        description="largest load report; a broker with a larger one is excluded (ReportTooLarge). Pulsar's processes "
        "write at most 10 MiB (jute.maxbuffer)",
    )
    root: Annotated[str, AllowedWords("/bundlekeel/ and a name of letters, digits, - _ .")] | None = Field(
        default=None,
        pattern=r"^/bundlekeel/[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="path of the shared state; null: /bundlekeel/{cluster}. Sidecars with different roots do not see "
        "each other: set another root only for a second installation that observes",
    )


class AdminSettings(Section):
    """Requests to the brokers' admin API."""

    connect_timeout: Duration = Field(
        default=3.0, ge=0.05, description="time-out until a broker accepts the connection"
    )
    read_timeout: Duration = Field(
        default=90.0,
        ge=1,
        description="time-out of a response; an unload takes up to namespaceBundleUnloadingTimeoutMs (60 s)",
    )
    max_redirects: int = Field(
        default=5, ge=0, le=20, description="highest number of redirects (307) to follow, only to known brokers"
    )
    token: SecretStr | None = Field(default=None, description="bearer token; token_file or a secret is safer")
    token_file: Path | None = Field(default=None, description="file with the token, re-read when it changes")
    tls_trust_certs_file: Path | None = Field(
        default=None, description="PEM file of trusted certificates; null: the system's"
    )
    tls_verify: bool = Field(default=True, description="verify certificate and host name of https brokers")
    tls_cert_file: Path | None = Field(default=None, description="PEM client certificate chain for brokers")
    tls_key_file: Path | None = Field(
        default=None, description="private key of the client certificate, PEM, not encrypted"
    )
    prefer_tls: bool = Field(default=False, description="use the brokers' encrypted addresses; a token turns this on")

    @property
    def encrypted_first(self) -> bool:
        """Whether the encrypted address is used for brokers with both addresses."""
        return self.prefer_tls or self.token is not None or self.token_file is not None

    @model_validator(mode="after")
    def _one_token(self) -> AdminSettings:
        if self.token is not None and self.token_file is not None:
            raise InvalidSetting("admin.token is set as well; give one of the two", field="token_file", allowed=None)
        together(self, "tls_cert_file", "tls_key_file")
        return self


class CycleSettings(Section):
    """Timing of cycles."""

    interval: Duration = Field(
        default=10.0,
        ge=0.1,
        description="longest time between two cycles; new reports start a cycle earlier. `--after` of the failsafe job "
        "(10m) must be at least three times as long",
    )


class ExtensibleSettings(Section):
    """Settings for brokers with the extensible load manager (PIP-192)."""

    bundles: Literal["all", "top"] = Field(
        default="all",
        description="all: read every bundle from each broker over REST; top: only the about ten bundles that each "
        "broker publishes, which exclude all bundles of a partial takeover",
    )
    stats_interval: Duration = Field(
        default=5.0,
        ge=1,
        le=3600,
        description="time between two reads of a broker's bundle statistics; also the time to detect a failed broker",
    )
    service_url: Annotated[str, Shown, AllowedWords("pulsar://host:port[,host:port] or pulsar+ssl://...")] | None = (
        Field(
            default=None, description="address for reading the load topics; null: the addresses that brokers registered"
        )
    )
    stuck_after: Duration = Field(
        default=15.0, ge=2, description="the Pulsar client's process is restarted if it sends nothing for this long"
    )

    @field_validator("service_url")
    @classmethod
    def _is_service_url(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"pulsar(\+ssl)?://[^\s/,]+(,[^\s/,]+)*/?", value) is None:
            raise InvalidSetting("not a service URL of brokers")
        check_ports(value or "")
        return value.rstrip("/") if value else None


class CapacitySettings(Section):
    """Capacity of the brokers that match a pattern, if their own report has no limit or a wrong one."""

    nic_gbps: float | None = Field(
        default=None, gt=0, description="Gbit/s per direction; VMs and pods report no NIC speed"
    )
    cores: float | None = Field(default=None, gt=0, description="CPU cores the broker may use")
    msg_rate: float | None = Field(default=None, gt=0, description="msg/s, sum of in and out")
    throughput: float | None = Field(default=None, gt=0, description="bytes/s, sum of in and out")
    direct_memory_mb: float | None = Field(default=None, gt=0, description="MiB of direct memory")
    cpu: Literal["ignore"] | None = Field(
        default=None, description="ignore: do not use CPU in the score (brokers share a machine)"
    )
    bandwidth: Literal["ignore"] | None = Field(default=None, description="ignore: do not use bandwidth in the score")
    direct_memory: Literal["ignore"] | None = Field(
        default=None, description="ignore: do not use direct memory in the score"
    )

    @model_validator(mode="after")
    def _no_contradiction(self) -> CapacitySettings:
        pairs = (("cores", "cpu"), ("nic_gbps", "bandwidth"), ("direct_memory_mb", "direct_memory"))
        for limit, resource in pairs:
            if getattr(self, limit) is not None and getattr(self, resource) is not None:
                text = f"{resource} is ignored, so {limit} would have no effect"
                raise InvalidSetting(text, field=limit, allowed=f"{limit}, or {resource}: ignore; not both")
        if self == CapacitySettings.model_construct():
            raise InvalidSetting("sets nothing", allowed=", ".join(CapacitySettings.model_fields))
        return self

    def override(self, pattern: str) -> CapacityOverride:
        """Return these limits in the form that the snapshot uses. `pattern`: matches the ids of their brokers."""
        ignored = tuple(name for name in ("cpu", "bandwidth", "direct_memory") if getattr(self, name))
        return CapacityOverride(
            pattern=pattern,
            nic_gbps=self.nic_gbps,
            cores=self.cores,
            msg_rate=self.msg_rate,
            throughput=self.throughput,
            direct_memory_mb=self.direct_memory_mb,
            ignore=ignored,
        )


class EffectsSettings(Section):
    """Reactions to moves without benefit, and to external moves."""

    quarantine_after: int = Field(
        default=3, ge=1, le=100, description="consecutive moves without benefit before a broker pair is quarantined"
    )
    quarantine_for: Duration = Field(default=3600.0, ge=0, description="duration of the quarantine")
    revert_worse_moves: bool = Field(
        default=False, description="move a bundle back, once, if its move increased the load of the more loaded broker"
    )
    heed_external_moves: bool = Field(
        default=True,
        description="start a cool-down for externally moved bundles; pause if another balancer keeps reverting moves",
    )


class LeadershipSettings(Section):
    """Leader election, and the safety margin against two leaders."""

    seats: int = Field(
        default=3,
        ge=1,
        le=15,
        description="sidecars that take part in the leader election and watch the cluster; others wait for a seat",
    )
    heartbeat: Duration = Field(
        default=2.0,
        ge=0.05,
        description="time between two confirmations of the leadership; at most a third of store.session_timeout",
    )
    margin_ratio: float = Field(
        default=0.2,
        ge=0.05,
        le=0.9,
        description="share of the session time-out by which a leader stops earlier than the store requires",
    )


class ApiSettings(Section):
    """The HTTP interface and the local socket."""

    host: Listening = Field(
        default="127.0.0.1",
        description="address to listen on; it must be reachable for metrics, probes and other sidecars",
    )
    port: int = Field(default=8090, ge=0, le=65535, description="port to listen on; 0: any free port")
    socket: Path | None = Field(
        default=Path("bundlekeel.sock"),
        description="unix socket of mode 0600 for the local CLI; its user has the role admin; null: no socket",
    )
    advertised_url: Annotated[str, Shown, AllowedWords("http(s)://host:port")] | None = Field(
        default=None, description="address of this sidecar for other sidecars; null: derived from host and port"
    )
    allowed_hosts: Annotated[tuple[str, ...], Listed] = Field(
        default=(), description="additional accepted Host headers (names of Services and proxies); others get 421"
    )
    max_concurrent: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="highest number of concurrent requests (plus a quarter for changes); others get 503",
    )
    max_connections: int = Field(
        default=256,
        ge=8,
        le=100_000,
        description="highest number of open connections per listener; at most a quarter from one address. A further "
        "connection closes the one that has been idle longest; if none is idle, it serves only probes",
    )
    auth: ApiAuthSettings = ApiAuthSettings()
    tls: ApiTlsSettings = ApiTlsSettings()

    @field_validator("advertised_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"https?://[^\s/]+/?", value) is None:
            raise InvalidSetting("not an address of a web server")
        check_ports(value or "")
        return value.rstrip("/") if value else None

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if "/" in name:
                allowed = "names without scheme and path, such as keel.example.com; .example.com for a domain"
                raise InvalidSetting(f"{name!r} is an address, not a host", allowed=allowed)
        return value


class JournalSettings(Section):
    """The journal of cycles, moves and requests: one JSON line per record."""

    path: Path | None = Field(
        default=Path("bundlekeel-journal.jsonl"), description="path of the file; null: only in memory"
    )
    max_bytes: int = Field(default=67_108_864, ge=4096, description="size at which the file is rotated")
    backups: int = Field(default=5, ge=0, le=1000, description="number of rotated files to keep")


class LoggingSettings(Section):
    """Logging to stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is logged"
    )
    format: Literal["json", "console", "auto"] = Field(
        default="auto", description="auto: console on a terminal, else json"
    )

    @field_validator("level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value


def _add_sections(namespace: dict[str, Any]) -> None:
    """Add the sections of the features to the namespace of a class that is being defined."""
    own = namespace["__annotations__"]
    namespace["__annotations__"] = fields = with_features(own, "settings", "SECTIONS")
    namespace.update({name: kind() for name, kind in fields.items() if name not in own})


class Settings(BaseSettings):
    """All settings of a sidecar."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=False, case_sensitive=True
    )

    cluster: Annotated[str, AllowedWords("letters, digits, - _ .")] = Field(
        default="standalone",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="the brokers' clusterName; with another name the sidecar does not start",
    )
    mode: Literal["observe", "recommend", "act"] = Field(
        default="recommend",
        description="observe and recommend change nothing; act executes plans. `bundlekeel mode` can lower the mode at "
        "run time, but not raise it above this value",
    )
    review: Annotated[Literal["off", "required"], Off] = Field(
        default="off",
        description="required: plans and manual moves (transfer, unload, split) wait until a second operator approves"
        " them; drain, warm, thresholds, quotas, mode and takeover take effect immediately",
    )
    metadata_store: NeededStoreAddress = Field(
        default=None,
        description="the brokers' metadataStoreUrl; required by `config check` and all commands for the cluster",
    )
    configuration_store: StoreAddress | None = Field(
        default=None,
        description="the brokers' configurationMetadataStoreUrl, which has the isolation policies; null: the address "
        "of most brokers, else metadata_store. With another path than most brokers', the sidecar does not start",
    )
    member_id: Annotated[str, AllowedWords("text without / and spaces")] | None = Field(
        default=None,
        pattern=r"^[^/\s]+$",
        description="name of this sidecar; null: host name and random digits",
    )
    strategy: Strategy = Field(default="avg", description="strategy (shedder) that selects the bundles to move")
    placement: Placement = Field(
        default="least_resource_usage",
        description="strategy that selects the target, if the shedder does not. Can be a section with `name` and "
        "`repair`; `repair: on` moves bundles back to the primary brokers of their policy (`placement_repair`)",
    )
    compat: Compat = Field(
        default="none",
        description="none: Bundlekeel's own strategies; a Pulsar release: the exact behaviour of its class with its "
        "defects, and Pulsar's defaults: strategy `threshold`, placement `least_long_term_message_rate`; in 5.0 both "
        "are `avg`",
    )
    force_mixed: bool = Field(
        default=False,
        description="act although load managers differ, but only on brokers with the load manager of the broker that "
        "started last",
    )
    adopt_broker_settings: bool = Field(
        default=False,
        description="use the brokers' strategy, placement and parameters (with the defaults before 5.0: `threshold`, "
        "not `avg`); values set here take precedence",
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="strategy and guard parameters, by Bundlekeel's names or Pulsar's keys"
    )
    capacity: dict[str, CapacitySettings] = Field(
        default_factory=dict,
        description="limits by broker id, glob or /regular expression/. Exactly one entry applies to a broker: its "
        "exact id, else the first matching glob, else the first regular expression, else `*`; entries are not merged",
    )
    windows: Windows = Field(
        default=(),
        description="times of automatic moves; outside of them, only operators' moves run. Without windows, automatic "
        "moves run at any time. Keep one window with `allow: overload` always open",
    )
    rate: RateSettings = RateSettings()
    cycle: CycleSettings = CycleSettings()
    store: StoreSettings = StoreSettings()
    admin: AdminSettings = AdminSettings()
    extensible: ExtensibleSettings = ExtensibleSettings()
    counters: CountersSettings = CountersSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    effects: EffectsSettings = EffectsSettings()
    leadership: LeadershipSettings = LeadershipSettings()
    api: ApiSettings = ApiSettings()
    journal: JournalSettings = JournalSettings()
    notify: NotifySettings = NotifySettings()
    traces: TraceSettings = TraceSettings()
    logging: LoggingSettings = LoggingSettings()
    # Sections of features are fields, too, but only their features know the types: see `section`.
    _add_sections(locals())

    def section(self, kind: type[T]) -> T:
        """Return the section of a feature, whose class is `kind`."""
        return next(value for value in vars(self).values() if isinstance(value, kind))

    @classmethod
    def from_sources(cls, sources: Sequence[PydanticBaseSettingsSource]) -> Settings:
        """Merge and validate the sources. Later sources override earlier ones. Raises ValidationError."""
        # mypy knows the arguments of BaseSettings only with a plugin.
        return cls(_build_sources=(tuple(reversed(sources)), {}))  # type: ignore[call-arg]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return only the constructor's arguments, so that `Settings(...)` reads no file and no environment
        variable."""
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _parameters_by_our_names(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("parameters"), dict):
            return values
        specs, problems = canonical(values["parameters"])
        for problem in problems:
            raise InvalidSetting(str(problem), field=problem.field, allowed=problem.allowed)
        merged = values | {"parameters": {n: g.value for n, g in specs.items() if n not in TOP_LEVEL}}
        for name in TOP_LEVEL:
            if name in specs and name in values:
                raise InvalidSetting(f"the same as {name}; give it once", field=f"parameters.{specs[name].key}")
            if name in specs:
                merged[name] = specs[name].value
        return merged

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_features(cls, values: Any) -> Any:
        for checks in feature_checks() if isinstance(values, dict) else ():
            values = checks.defaults(values)
        return values

    @model_validator(mode="after")
    def _no_replaced_parameters(self) -> Settings:
        try:
            check_compat(self.compat, self.parameters)
        except ConfigError as error:
            raise InvalidSetting(str(error), field=error.field, allowed=error.allowed) from None
        return self

    @field_validator("capacity")
    @classmethod
    def _patterns(cls, value: dict[str, CapacitySettings]) -> dict[str, CapacitySettings]:
        for pattern in value:
            if not pattern.strip():
                raise InvalidSetting("an empty pattern", allowed="a broker id, a glob or /regular expression/")
            if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
                try:
                    re.compile(pattern[1:-1])
                except re.error as error:
                    allowed = "a regular expression between two /, a glob or a broker id"
                    raise InvalidSetting(f"not a regular expression: {error}", field=pattern, allowed=allowed) from None
        return value

    @model_validator(mode="after")
    def _heartbeat_fits(self) -> Settings:
        longest = self.store.session_timeout / HEARTBEATS_PER_SESSION
        if self.leadership.heartbeat > longest:
            raise InvalidSetting(
                "a leader would lose its session between two heartbeats",
                field="leadership.heartbeat",
                allowed=f"at most {int(longest * 100) / 100:g}s, a third of store.session_timeout",
            )
        return self

    @model_validator(mode="after")
    def _prometheus_has_an_address(self) -> Settings:
        if self.counters.source == "prometheus" and self.prometheus.url is None:
            raise InvalidSetting(
                "counters.source is prometheus, but prometheus.url is not set",
                field="prometheus.url",
                allowed="http(s)://host[:port][/path]",
            )
        return self

    @model_validator(mode="after")
    def _pair_that_pulsar_takes(self) -> Settings:
        named = {name: getattr(self, name) for name in ("strategy", "placement") if name in self.model_fields_set}
        pair = compat_defaults(self.compat, named.get("strategy")) | named
        try:
            check_pair(self.compat, pair.get("strategy"), pair.get("placement"))
        except ConfigError as error:
            default = "" if "strategy" in named else f", and {pair['strategy']} its default strategy"
            raise InvalidSetting(f"{error}{default}", field=error.field, allowed=error.allowed) from None
        return self

    @property
    def reviewed(self) -> bool:
        """Whether a second operator must approve plans and manual moves."""
        return self.review == "required"

    @property
    def store_url(self) -> str:
        """The address `metadata_store`. Raises ConfigError if it is not set: no default can be right."""
        if self.metadata_store is None:
            files = "settings file: -c FILE, or BUNDLEKEEL_CONFIG"
            allowed = f"the brokers' metadataStoreUrl, such as zk:zk-1:2181/pulsar; {files}"
            raise ConfigError(f"metadata_store: it is missing (allowed: {allowed})", field="metadata_store")
        return self.metadata_store

    @property
    def stores(self) -> tuple[str, str | None]:
        """The addresses `metadata_store` and `configuration_store`. Raises ConfigError if the first is not set."""
        return self.store_url, self.configuration_store

    @property
    def root_path(self) -> str:
        """The path of the shared state in the metadata store."""
        return self.store.root or f"/bundlekeel/{self.cluster}"

    @property
    def capacity_overrides(self) -> tuple[CapacityOverride, ...]:
        """The limits of the section `capacity`, in the order of the file."""
        return tuple(item.override(pattern) for pattern, item in self.capacity.items())
