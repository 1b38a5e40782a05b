"""Effective settings of the brokers, which show whether a broker sheds load and refreshes its report.

Bundlekeel can also use their values as its own settings. They are read from `configuration/runtime` of every broker (a
GET without side effects) at most once in `max_age_seconds`, and immediately when the set of brokers changed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import structlog

from bundlekeel.model.errors import AdminApiError, CodecError, ConfigError, SnapshotError, WrongCluster
from bundlekeel.model.numbers import MAX_INT, MAX_NUMBER, integer, number
from bundlekeel.model.parameters import BY_PULSAR_KEY, defaults
from bundlekeel.model.store_urls import parse_store_url
from bundlekeel.ports import BrokerAdmin, BrokerEndpoint, Clock
from bundlekeel.pulsar.channel.findings import DEADLINE_KEYS
from bundlekeel.settings.parameters import REPORTED_BUNDLES, STOCK

_log = structlog.get_logger(__name__)

# A broker's two stores: the first key with a value counts (`ServiceConfiguration.getConfigurationMetadataStoreUrl`).
_METADATA = ("metadataStoreUrl", "zookeeperServers")
_CONFIGURATION = ("configurationMetadataStoreUrl", "configurationStoreServers", "globalZookeeperServers", *_METADATA)

# Settings that this program reads as numbers.
_NUMBERS = frozenset(DEADLINE_KEYS) | {
    key for key, specs in BY_PULSAR_KEY.items() if all(type(defaults()[spec.name]) in (int, float) for spec in specs)
}
# How long the last settings of a broker that does not respond stay valid, so that balancing of the others continues.
KEPT_SECONDS = 60.0


class BrokerConfig:
    """Cache of each broker's effective settings; results are None for a broker that could not be queried.

    `cluster`: required `clusterName` of the brokers; None: any. `stores`: the sidecar's settings `metadata_store` and
    `configuration_store` (None: use the brokers' store). `follow`: called with the address of the brokers'
    configuration store if that is another store than `metadata_store`.
    """

    def __init__(
        self,
        admin: BrokerAdmin,
        clock: Clock,
        *,
        cluster: str | None = None,
        stores: tuple[str, str | None] = ("", None),
        follow: Callable[[str], Awaitable[None]] | None = None,
        max_age_seconds: float = 10.0,
    ) -> None:
        self._admin = admin
        self._cluster = cluster
        self._stores = stores
        self._follow = follow
        self._clock = clock
        self._max_age = max_age_seconds
        self._read_at = float("-inf")
        self._entries: dict[str, tuple[int, dict[str, str], float]] = {}
        self._read_ids: frozenset[tuple[str, int]] = frozenset()
        self._brokers: frozenset[str] = frozenset()
        self._common: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self._reported: dict[str, frozenset[str]] = {}

    async def refresh(self, endpoints: Mapping[str, BrokerEndpoint], *, force: bool = False) -> None:
        """Read settings that are older than the limit, or that belong to a new or restarted broker.

        Raises WrongCluster if most brokers report a cluster name, and none reports the name `cluster`.
        """
        endpoint_ids = frozenset((item.broker_id, item.start_timestamp) for item in endpoints.values())
        stale = self._clock.boot() - self._read_at > self._max_age
        if not (force or stale or endpoint_ids != self._read_ids):
            return
        self._entries = {broker: entry for broker, entry in self._entries.items() if broker in endpoints}
        self._reported = {broker: keys for broker, keys in self._reported.items() if broker in endpoints}
        self.errors = {}
        self._brokers = frozenset(endpoints)
        due = [
            endpoint
            for broker, endpoint in endpoints.items()
            if force or stale or self._entries.get(broker, (None,))[0] != endpoint.start_timestamp
        ]
        await asyncio.gather(*(self._ask(endpoint) for endpoint in due))
        self._read_ids = endpoint_ids if not self.errors else frozenset()
        self._read_at = self._clock.boot()
        self._common = self._most_common()
        self._demand_cluster()
        await self._follow_store()

    @property
    def _majority(self) -> int:
        """Number of registered brokers that must agree on a fact about the cluster, as one broker may be wrong."""
        return len(self._brokers) // 2 + 1

    def _demand_cluster(self) -> None:
        reported = [values["clusterName"] for _, values, _ in self._entries.values() if values.get("clusterName")]
        if self._cluster is not None and self._cluster not in reported and len(reported) >= self._majority:
            names = sorted(set(reported))
            text = (
                f"cluster is {self._cluster!r}, but the brokers run with clusterName "
                f"{' and '.join(map(repr, names))}: set cluster to that name (two names would mean two leaders)"
            )
            raise WrongCluster(text, field="cluster", value=self._cluster, allowed=" or ".join(names))

    def demand_configuration_store(self) -> None:
        """Raise WrongCluster if most brokers use another configuration store than this sidecar.

        Without the setting `configuration_store`, this sidecar expects policies and metadata in one ZooKeeper. Raises
        SnapshotError if a broker has them in two, and no majority of brokers is known to have them in one. Separate
        from `refresh`, because not every user of settings needs policies.
        """
        (metadata, setting), others = self._stores, self._elsewhere()
        names = " or ".join(sorted({configuration_store(values) for values in others}))
        if len(others) >= self._majority:
            ours = f"is {setting!r}" if setting else f"is not set, which means metadata_store ({metadata!r})"
            text = (
                f"configuration_store {ours}, but the brokers use {names}: set configuration_store to that address "
                "(isolation policies are there; without them bundles would go where they are forbidden)"
            )
            raise WrongCluster(text, field="configuration_store", value=setting, allowed=names)
        if others and setting is None and len(self._entries) - len(others) < self._majority:
            text = f"{len(others)} of {len(self._brokers)} brokers show {names} as their configuration store"
            raise SnapshotError(f"{text}, and no majority confirms ours: set configuration_store to the right address")

    def _elsewhere(self) -> list[dict[str, str]]:
        """Return the settings of each broker whose configuration store is certainly not the sidecar's."""
        return [values for _, values, _ in self._entries.values() if _other_store(values, *self._stores)]

    async def _follow_store(self) -> None:
        """Read policies from the brokers' configuration store, if the sidecar's settings do not name one.

        More than half of the brokers must report the same address. One wrong broker must not choose it, because the
        sidecar sends its own ZooKeeper credentials to this address.
        """
        metadata, setting = self._stores
        brokers: dict[tuple[frozenset[str], str], list[dict[str, str]]] = {}
        for values in [] if setting else self._elsewhere():
            hosts, chroot = parse_store_url(configuration_store(values))
            brokers.setdefault((frozenset(hosts.split(",")), chroot), []).append(values)
        agreed = next((group for group in brokers.values() if len(group) >= self._majority), None)
        if agreed and self._follow is not None:
            store = _reachable_store(agreed[0], metadata)
            self._stores = (metadata, store)
            _log.info("policies are read from the brokers' configuration store", store=store)
            await self._follow(store)

    async def _ask(self, endpoint: BrokerEndpoint) -> None:
        """Read one broker's settings. If it does not respond, its last settings stay for a while, unless it
        restarted."""
        broker, now = endpoint.broker_id, self._clock.boot()
        try:
            values = await self._admin.runtime_configuration(broker)
            self._entries[broker] = (endpoint.start_timestamp, values, now)
            self._report_unusable(broker)
        except AdminApiError as error:
            entry = self._entries.get(broker)
            if entry is not None and (entry[0] != endpoint.start_timestamp or now - entry[2] > KEPT_SECONDS):
                del self._entries[broker]
            self.errors[broker] = str(error)
            text = "broker settings could not be read; the last ones are used for a while"
            _log.info(text, broker=broker, error=str(error))

    def unusable(self, broker: str) -> dict[str, CodecError]:
        """Return the settings of a broker that should be numbers but are not, by key. Such settings are ignored."""
        unusable: dict[str, CodecError] = {}
        for key, value in (self._values(broker) or {}).items():
            try:
                if key in _NUMBERS and value.strip():
                    number(value, field=key, lowest=-MAX_NUMBER)
            except CodecError as error:
                unusable[key] = error
        return unusable

    def _report_unusable(self, broker: str) -> None:
        unusable = self.unusable(broker)
        if unusable.keys() - self._reported.get(broker, frozenset()):
            for error in unusable.values():
                _log.warning("broker setting ignored: not a number", broker=broker, code=error.code, error=str(error))
        self._reported[broker] = frozenset(unusable)

    def sheds(self, broker: str) -> bool | None:
        """Return whether this broker's own shedding is on; None if it could not be queried."""
        values = self._values(broker)
        if values is None:
            return None
        return _true(values, "loadBalancerEnabled") and _true(values, "loadBalancerSheddingEnabled")

    def splits(self, broker: str) -> bool | None:
        """Return whether this broker's own automatic split is on; None if it could not be queried."""
        values = self._values(broker)
        return None if values is None else _true(values, "loadBalancerAutoBundleSplitEnabled")

    def unloads_splits(self, broker: str) -> bool:
        """Return whether this broker is known to unload new bundles after its automatic splits, which may move them."""
        values = self._values(broker)
        return values is not None and _true(values, "loadBalancerAutoUnloadSplitBundlesEnabled")

    def brokers_split(self, brokers: Iterable[str]) -> bool:
        """Return whether some of these brokers may split bundles automatically, or could not be queried.

        With the modular load manager only the leader broker splits, and any broker may be the leader
        (`BundleSplitterTask`). With the extensible load manager each broker splits its own bundles (`SplitScheduler`).
        """
        return any(self.splits(broker) is not False for broker in brokers)

    def reports_frozen(self, broker: str) -> bool | None:
        """Return whether this broker never refreshes its report (`loadBalancerEnabled=false`); None if unknown."""
        values = self._values(broker)
        return None if values is None else not _true(values, "loadBalancerEnabled")

    def adoptable(self) -> Mapping[str, str]:
        """Return one value of each setting for the whole cluster: the most common one, as a single broker may be wrong.

        For intervals of measuring and reporting (`STOCK`), return the longest interval.
        """
        return {**self._common, **self._slowest()}

    def _most_common(self) -> dict[str, str]:
        """Return the most common value of each key. In case of a tie, the broker with the first id decides."""
        brokers = [values for _, (_, values, _) in sorted(self._entries.items())]
        # Omit keys that fewer than half of the brokers show: their most common value is "not set".
        frequency = Counter(key for values in brokers for key in values)
        counted = {
            key: Counter(values.get(key) for values in brokers)
            for key, count in frequency.items()
            if 2 * count >= len(brokers)
        }
        return {key: value for key, counts in counted.items() if (value := counts.most_common(1)[0][0]) is not None}

    def _slowest(self) -> dict[str, str]:
        """Return for each key of `STOCK` the largest value that a broker reports.

        For the number of published bundles, return the smallest value (0 or less means all bundles). For a broker that
        reports no value, Pulsar's default counts.
        """
        result: dict[str, str] = {}
        for key, stock in STOCK.items():
            reported = [(self._values(broker) or {}).get(key, "") for broker in self._brokers]
            # Parse each distinct value once: 1,000 strings would take 0.1 s.
            values = {text: _integer(key, text) for text in set(reported)}
            read = [value for text in reported if (value := values[text]) is not None]
            if read:
                every = read if len(read) == len(reported) else [*read, stock]
                limited = [value for value in every if value > 0]
                result[key] = str(min(limited, default=0) if key == REPORTED_BUNDLES else max(every))
        return result

    def values(self, broker: str) -> Mapping[str, str] | None:
        """Return all settings of this broker; None if it could not be queried."""
        return self._values(broker)

    def _values(self, broker: str) -> dict[str, str] | None:
        entry = self._entries.get(broker)
        return None if entry is None else entry[1]


def _integer(key: str, text: str) -> int | None:
    with suppress(CodecError):
        return integer(text, field=key, lowest=-MAX_INT, highest=MAX_INT)
    return None


def _true(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "true").strip().lower() == "true"


def configuration_store(values: Mapping[str, str]) -> str:
    """Return the address of the configuration store in a broker's settings; "": not set."""
    return _first(values, _CONFIGURATION)


def _first(values: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((value for key in keys if (value := values.get(key, "").strip())), "")


def _other_store(values: Mapping[str, str], metadata: str, setting: str | None) -> bool:
    """Return whether the broker certainly uses another configuration store than this sidecar.

    If `setting` is set, only paths are compared, because a host can have several names. If `setting` is None, the
    sidecar expects that the broker's configuration store is the same ZooKeeper as its metadata store.
    """
    try:
        hosts, chroot = parse_store_url(configuration_store(values))
        local, _ = parse_store_url(_first(values, _METADATA))
        _, ours = parse_store_url(setting or metadata)
    except ConfigError:  # not ZooKeeper
        return False
    return chroot != ours or (setting is None and not set(hosts.split(",")) & set(local.split(",")))


def _reachable_store(values: Mapping[str, str], metadata: str) -> str:
    """Return an address of this broker's configuration store that this sidecar can reach.

    If that store is the same ZooKeeper as the metadata store, the host names in `metadata` (the sidecar's setting) are
    used, because the broker's names may not resolve here.
    """
    hosts, chroot = parse_store_url(configuration_store(values))
    local, _ = parse_store_url(_first(values, _METADATA))
    if set(hosts.split(",")) & set(local.split(",")):
        hosts, _ = parse_store_url(metadata)
    return f"zk:{hosts}{chroot}"
