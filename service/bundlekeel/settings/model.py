"""The settings of a sidecar as one frozen tree. Each field says what it is and why; docs/reference is made of it.

Durations are written `10s`, `500ms`, `1m` or as seconds, and are seconds here. `settings.load` reads the sources.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from bundlekeel.core.calibration.thresholds import AdoptionRules
from bundlekeel.core.model.capacity import CapacityOverride
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.parameters import check_pair, compat_defaults
from bundlekeel.settings.parameters import TOP_LEVEL, canonical, check_used
from bundlekeel.settings.quotas import QuotaSettings
from bundlekeel.settings.sections import (
    CalibrationSettings,
    CountersSettings,
    HistorySettings,
    NotifySettings,
    PrometheusSettings,
    RateSettings,
    ShadowSettings,
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

# Heartbeats that fit into a session: one may be late and one may be lost before leadership is.
HEARTBEATS_PER_SESSION = 3
# After this time without a completed cycle the failsafe acts, unless it is told another one.
FAILSAFE_AFTER = 600.0
# Cycles that must fit into it: a leader that is a little slow is not dead.
FAILSAFE_CYCLES = 3


class StoreSettings(StoreSecuritySettings):
    """How the metadata store is talked to."""

    session_timeout: Duration = Field(
        default=10.0,
        ge=1,
        le=300,
        description="asked of ZooKeeper; a leader that fails is replaced after about this time",
    )
    call_timeout: Duration = Field(default=3.0, ge=0.05, description="a single read or write gives up after this")
    settle_after_outage: Duration = Field(
        default=180.0,
        ge=0,
        le=86_400,
        description="after an outage of the store nothing moves until all brokers are back and unchanged for this long",
    )
    batch_window: Duration = Field(
        default=0.2,
        ge=0,
        le=10,
        description="changes within this time are read together, so that the start of a broker is one cycle",
    )
    max_report_bytes: int = Field(
        default=10_485_760,
        ge=1024,
        le=10_485_760,
        description="a broker's report larger than this excludes that broker (ReportTooLarge). Pulsar's processes "
        "write no larger one than 10 MiB (jute.maxbuffer)",
    )
    root: Annotated[str, AllowedWords("/bundlekeel/ and a name of letters, digits, - _ .")] | None = Field(
        default=None,
        pattern=r"^/bundlekeel/[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="where shared state lives; null means /bundlekeel/{cluster}. Sidecars of two roots do not see each "
        "other: give another root only to an installation that observes beside the one that acts",
    )


class AdminSettings(Section):
    """How the brokers' admin API is called."""

    connect_timeout: Duration = Field(default=3.0, ge=0.05, description="until a broker accepts the connection")
    read_timeout: Duration = Field(
        default=90.0,
        ge=1,
        description="until it answers; an unload takes up to namespaceBundleUnloadingTimeoutMs (60 s)",
    )
    max_redirects: int = Field(
        default=5, ge=0, le=20, description="redirects (307) that are followed, to known brokers only"
    )
    token: SecretStr | None = Field(default=None, description="bearer token; better kept in token_file or a secret")
    token_file: Path | None = Field(default=None, description="file with the token, read again when it changes")
    tls_trust_certs_file: Path | None = Field(default=None, description="PEM bundle; null takes the system's")
    tls_verify: bool = Field(default=True, description="check certificate and host name of https brokers")
    tls_cert_file: Path | None = Field(default=None, description="PEM client certificate chain shown to brokers")
    tls_key_file: Path | None = Field(default=None, description="its private key, PEM, not encrypted")
    prefer_tls: bool = Field(default=False, description="use the brokers' encrypted addresses; always with a token")

    @property
    def encrypted_first(self) -> bool:
        """Whether a broker that has both addresses is called at the encrypted one."""
        return self.prefer_tls or self.token is not None or self.token_file is not None

    @model_validator(mode="after")
    def _one_token(self) -> AdminSettings:
        if self.token is not None and self.token_file is not None:
            raise InvalidSetting("admin.token is set as well; give one of the two", field="token_file", allowed=None)
        together(self, "tls_cert_file", "tls_key_file")
        return self


class CycleSettings(Section):
    """When a cycle runs."""

    interval: Duration = Field(
        default=10.0,
        ge=0.1,
        description="a cycle also runs when fresh reports arrive; each ends in one sentence. `--after` of the "
        "failsafe (10m) must be at least three times as long",
    )


class ExtensibleSettings(Section):
    """What holds only where the brokers run the extensible load manager (PIP-192)."""

    bundles: Literal["all", "top"] = Field(
        default="all",
        description="all: every bundle, asked of each broker over REST; top: only the ten or so each broker publishes, "
        "which are none of a partial takeover",
    )
    stats_interval: Duration = Field(
        default=5.0,
        ge=1,
        le=3600,
        description="how often each broker is asked for its bundles' figures; also how soon a failed one is detected",
    )
    service_url: Annotated[str, Shown, AllowedWords("pulsar://host:port[,host:port] or pulsar+ssl://...")] | None = (
        Field(
            default=None, description="where the load topics are read; null takes the addresses the brokers registered"
        )
    )
    stuck_after: Duration = Field(
        default=15.0, ge=2, description="the Pulsar client's process is started again when it is silent for this long"
    )

    @field_validator("service_url")
    @classmethod
    def _is_service_url(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"pulsar(\+ssl)?://[^\s/,]+(,[^\s/,]+)*/?", value) is None:
            raise InvalidSetting("not a service URL of brokers")
        check_ports(value or "")
        return value.rstrip("/") if value else None


class CapacitySettings(Section):
    """What the brokers of one pattern can carry, where their own report has no limit or a wrong one."""

    nic_gbps: float | None = Field(default=None, gt=0, description="Gbit/s each way; VMs and pods report no NIC speed")
    cores: float | None = Field(default=None, gt=0, description="CPU cores the broker may use")
    msg_rate: float | None = Field(default=None, gt=0, description="msg/s, in and out together")
    throughput: float | None = Field(default=None, gt=0, description="bytes/s, in and out together")
    direct_memory_mb: float | None = Field(default=None, gt=0, description="MiB of direct memory")
    cpu: Literal["ignore"] | None = Field(
        default=None, description="ignore: do not count CPU (brokers share a machine)"
    )
    bandwidth: Literal["ignore"] | None = Field(default=None, description="ignore: do not count bandwidth at all")
    direct_memory: Literal["ignore"] | None = Field(default=None, description="ignore: do not count direct memory")

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
        """Return these limits as a value of `core`."""
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
    """What follows from moves that did not help."""

    quarantine_after: int = Field(
        default=3, ge=1, le=100, description="consecutive moves without benefit before a broker pair is quarantined"
    )
    quarantine_for: Duration = Field(default=3600.0, ge=0, description="how long the quarantine lasts")
    revert_worse_moves: bool = Field(
        default=False, description="move a bundle back, once, when its move made the more loaded broker worse"
    )
    heed_external_moves: bool = Field(
        default=True,
        description="do not move bundles for a while that others moved; pause when others keep undoing our moves",
    )


class LeadershipSettings(Section):
    """Who leads, and how surely no two do."""

    seats: int = Field(
        default=3,
        ge=1,
        le=15,
        description="sidecars that take part in leader election and watch everything; further ones wait for a seat",
    )
    heartbeat: Duration = Field(
        default=2.0, ge=0.05, description="how often leadership is confirmed; at most a third of store.session_timeout"
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
        description="address to listen on; metrics, probes and sidecars of other hosts need a reachable one",
    )
    port: int = Field(default=8090, ge=0, le=65535, description="0 takes any free port")
    socket: Path | None = Field(
        default=Path("bundlekeel.sock"),
        description="unix socket of mode 0600 for the local CLI, whose user may do everything, as role admin; "
        "null: none",
    )
    advertised_url: Annotated[str, Shown, AllowedWords("http(s)://host:port")] | None = Field(
        default=None, description="where other sidecars reach this one; null derives it from host and port"
    )
    allowed_hosts: Annotated[tuple[str, ...], Listed] = Field(
        default=(), description="further Host headers to accept (names of Services and proxies); others get 421"
    )
    max_concurrent: int = Field(
        default=64, ge=1, le=10_000, description="requests handled at once (a quarter more for changes); others get 503"
    )
    max_connections: int = Field(
        default=256,
        ge=8,
        le=100_000,
        description="open connections of a listener, a quarter of them from one address; a new connection closes the "
        "one that has been idle longest, or serves probes alone if none is idle",
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
    """The record of what was done: one JSON line a cycle and one a move."""

    path: Path | None = Field(default=Path("bundlekeel-journal.jsonl"), description="null keeps it in memory only")
    max_bytes: int = Field(default=67_108_864, ge=4096, description="size at which the file is rotated")
    backups: int = Field(default=5, ge=0, le=1000, description="rotated files kept")


class LoggingSettings(Section):
    """What is logged to stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is shown"
    )
    format: Literal["json", "console", "auto"] = Field(
        default="auto", description="auto: console on a terminal, else json"
    )

    @field_validator("level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value


class Settings(BaseSettings):
    """All settings of a sidecar."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=False, case_sensitive=True
    )

    cluster: Annotated[str, AllowedWords("letters, digits, - _ .")] = Field(
        default="standalone",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="the brokers' clusterName: under any other name the sidecar does not start",
    )
    mode: Literal["observe", "recommend", "act"] = Field(
        default="recommend",
        description="observe and recommend change nothing, act carries plans out; `bundlekeel mode` can lower it at "
        "run time and never raise it above this",
    )
    review: Annotated[Literal["off", "required"], Off] = Field(
        default="off",
        description="required: plans and moves by hand (transfer, unload, split) wait until another person approves"
        " them; drain, warm, thresholds, quotas, mode and takeover act at once",
    )
    metadata_store: NeededStoreAddress = Field(
        default=None,
        description="the brokers' metadataStoreUrl; null is refused by `config check` and what talks to the cluster",
    )
    configuration_store: StoreAddress | None = Field(
        default=None,
        description="the brokers' configurationMetadataStoreUrl, where isolation policies are; null: the address that "
        "most brokers show, else metadata_store. With another path than most brokers' the sidecar does not start",
    )
    member_id: Annotated[str, AllowedWords("text without / and spaces")] | None = Field(
        default=None,
        pattern=r"^[^/\s]+$",
        description="this sidecar's name; null makes one of host name and random digits",
    )
    strategy: Strategy = Field(default="avg", description="which shedder decides")
    placement: Placement = Field(
        default="least_resource_usage",
        description="where a shed bundle goes when the shedder does not say; or a section of `name` and `repair`: with "
        "`repair: on` bundles move back to the primary brokers of their isolation policy (`placement_repair`)",
    )
    compat: Compat = Field(
        default="none",
        description="none: the corrected strategies; a release of Pulsar: what its own class does, defects included, "
        "and Pulsar's defaults for what is not set: strategy `threshold`, placement `least_long_term_message_rate`",
    )
    force_mixed: bool = Field(
        default=False,
        description="act although brokers run different load managers: among those of the class that started last",
    )
    adopt_broker_settings: bool = Field(
        default=False,
        description="use the brokers' strategy, placement and parameters (brokers of stock settings: `threshold`, not "
        "`avg`); values set here take precedence",
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="strategy and guard parameters, by our names or Pulsar's keys"
    )
    capacity: dict[str, CapacitySettings] = Field(
        default_factory=dict,
        description="limits by broker id, glob or /regular expression/. One entry counts for a broker, whole; entries "
        "do not add up: its exact id, else the first glob, else the first regular expression, else `*`",
    )
    windows: Windows = Field(
        default=(),
        description="when bundles may move by themselves; outside of them only moves that a person asked for are made. "
        "With none they may at any time. Keep one with `allow: overload` that is always open",
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
    history: HistorySettings = HistorySettings()
    calibration: CalibrationSettings = CalibrationSettings()
    shadow: ShadowSettings = ShadowSettings()
    notify: NotifySettings = NotifySettings()
    traces: TraceSettings = TraceSettings()
    quotas: QuotaSettings = QuotaSettings()
    logging: LoggingSettings = LoggingSettings()

    @classmethod
    def from_sources(cls, sources: Sequence[PydanticBaseSettingsSource]) -> Settings:
        """Merge sources, of which the last one wins, and validate. Raises ValidationError."""
        # Only the plugin for mypy knows the arguments of BaseSettings.
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
        """Return only the arguments: `Settings(...)` reads no file and no variable, `from_sources` its sources."""
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _parameters_by_our_names(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("parameters"), dict):
            return values
        found, problems = canonical(values["parameters"])
        for problem in problems:
            raise InvalidSetting(str(problem), field=problem.field, allowed=problem.allowed)
        merged = values | {"parameters": {n: g.value for n, g in found.items() if n not in TOP_LEVEL}}
        for name in TOP_LEVEL:
            if name in found and name in values:
                raise InvalidSetting(f"the same as {name}; give it once", field=f"parameters.{found[name].key}")
            if name in found:
                merged[name] = found[name].value
        return merged

    @model_validator(mode="after")
    def _no_replaced_parameters(self) -> Settings:
        try:
            check_used(self.compat, self.parameters)
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
        """Whether a second operator has to approve a request."""
        return self.review == "required"

    @property
    def adoption_rules(self) -> AdoptionRules:
        """The conditions for adopting a proposal of the nightly job."""
        return AdoptionRules(
            max_steps=self.calibration.max_steps,
            max_age_seconds=self.calibration.max_age,
            min_days=self.calibration.min_days,
            min_coverage=self.calibration.min_coverage,
            cluster=self.cluster,
            interval_seconds=self.cycle.interval,
        )

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
        """The `capacity` section as values of `core`, in the order of the file."""
        return tuple(item.override(pattern) for pattern, item in self.capacity.items())
