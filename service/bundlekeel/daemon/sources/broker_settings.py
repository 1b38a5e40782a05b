"""What the brokers themselves run with: do they shed, are their reports alive, which settings to adopt.

Read from `configuration/runtime` of every broker (a GET without side effects), at most once in `max_age_seconds`,
and at once when the set of brokers changed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import structlog

from bundlekeel.core.channel.findings import DEADLINE_KEYS
from bundlekeel.core.model.errors import AdminApiError, CodecError, ConfigError, SnapshotError, WrongCluster
from bundlekeel.core.model.numbers import MAX_INT, MAX_NUMBER, integer, number
from bundlekeel.core.model.parameters import BY_PULSAR_KEY, defaults
from bundlekeel.core.model.store_urls import parse_store_url
from bundlekeel.ports import BrokerAdmin, BrokerEndpoint, Clock
from bundlekeel.settings.parameters import REPORTED_BUNDLES, STOCK

_log = structlog.get_logger(__name__)

# A broker's two stores: the first key with a value counts (`ServiceConfiguration.getConfigurationMetadataStoreUrl`).
_METADATA = ("metadataStoreUrl", "zookeeperServers")
_CONFIGURATION = ("configurationMetadataStoreUrl", "configurationStoreServers", "globalZookeeperServers", *_METADATA)

# Settings that this program reads as numbers.
_NUMBERS = frozenset(DEADLINE_KEYS) | {
    key for key, specs in BY_PULSAR_KEY.items() if all(type(defaults()[spec.name]) in (int, float) for spec in specs)
}
# A broker that hangs must not stop the balancing of the others before its session ends.
KEPT_SECONDS = 60.0


class BrokerConfig:
    """Cache of each broker's effective settings; a broker that could not be asked is None in answers about it.

    `cluster`: the name that the brokers must run with (`clusterName`); None where it does not matter. `stores`: our
    `metadata_store` and `configuration_store` (None: that of the brokers, which `follow` is told where it is another
    one than the `metadata_store`).
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
        self._known: dict[str, tuple[int, dict[str, str], float]] = {}
        self._asked: frozenset[tuple[str, int]] = frozenset()
        self._brokers: frozenset[str] = frozenset()
        self._common: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self._reported: dict[str, frozenset[str]] = {}

    async def refresh(self, endpoints: Mapping[str, BrokerEndpoint], *, force: bool = False) -> None:
        """Read again what is older than the limit or belongs to a broker that is new or restarted.

        Raises WrongCluster if most brokers show a name and none of them shows that of our cluster.
        """
        wanted = frozenset((item.broker_id, item.start_timestamp) for item in endpoints.values())
        stale = self._clock.boot() - self._read_at > self._max_age
        if not (force or stale or wanted != self._asked):
            return
        self._known = {broker: known for broker, known in self._known.items() if broker in endpoints}
        self._reported = {broker: keys for broker, keys in self._reported.items() if broker in endpoints}
        self.errors = {}
        self._brokers = frozenset(endpoints)
        due = [
            endpoint
            for broker, endpoint in endpoints.items()
            if force or stale or self._known.get(broker, (None,))[0] != endpoint.start_timestamp
        ]
        await asyncio.gather(*(self._ask(endpoint) for endpoint in due))
        self._asked = wanted if not self.errors else frozenset()
        self._read_at = self._clock.boot()
        self._common = self._most_common()
        self._demand_cluster()
        await self._follow_store()

    @property
    def _majority(self) -> int:
        """Return how many registered brokers must agree on a fact about the cluster: one broker may be wrong."""
        return len(self._brokers) // 2 + 1

    def _demand_cluster(self) -> None:
        shown = [values["clusterName"] for _, values, _ in self._known.values() if values.get("clusterName")]
        if self._cluster is not None and self._cluster not in shown and len(shown) >= self._majority:
            names = sorted(set(shown))
            text = (
                f"cluster is {self._cluster!r}, but the brokers run with clusterName "
                f"{' and '.join(map(repr, names))}: set cluster to that name (two names would mean two leaders)"
            )
            raise WrongCluster(text, field="cluster", value=self._cluster, allowed=" or ".join(names))

    def demand_configuration_store(self) -> None:
        """Raise WrongCluster if most brokers show another configuration store than ours.

        Raises SnapshotError if ours is not set, a broker shows another one, and too few brokers confirm ours.
        What is restored needs no policies, so `refresh` does not demand it.
        """
        (metadata, given), others = self._stores, self._elsewhere()
        names = " or ".join(sorted({configuration_store(values) for values in others}))
        if len(others) >= self._majority:
            ours = f"is {given!r}" if given else f"is not set, which means metadata_store ({metadata!r})"
            text = (
                f"configuration_store {ours}, but the brokers use {names}: set configuration_store to that address "
                "(isolation policies are there; without them bundles would go where they are forbidden)"
            )
            raise WrongCluster(text, field="configuration_store", value=given, allowed=names)
        if others and given is None and len(self._known) - len(others) < self._majority:
            text = f"{len(others)} of {len(self._brokers)} brokers show {names} as their configuration store"
            raise SnapshotError(f"{text}, and no majority confirms ours: set configuration_store to the right address")

    def _elsewhere(self) -> list[dict[str, str]]:
        """Return the settings of each broker whose configuration store is certainly not ours."""
        return [values for _, values, _ in self._known.values() if _other_store(values, *self._stores)]

    async def _follow_store(self) -> None:
        """Read policies from the store that most brokers show. The sidecar identifies itself there, so one broker
        must not choose it."""
        metadata, given = self._stores
        brokers: dict[tuple[frozenset[str], str], list[dict[str, str]]] = {}
        for values in [] if given else self._elsewhere():
            hosts, chroot = parse_store_url(configuration_store(values))
            brokers.setdefault((frozenset(hosts.split(",")), chroot), []).append(values)
        agreed = next((group for group in brokers.values() if len(group) >= self._majority), None)
        if agreed and self._follow is not None:
            store = _reached(agreed[0], metadata)
            self._stores = (metadata, store)
            _log.info("policies are read from the brokers' configuration store", store=store)
            await self._follow(store)

    async def _ask(self, endpoint: BrokerEndpoint) -> None:
        """Read one broker's settings. One that does not answer keeps what it said a moment ago, unless it restarted."""
        broker, now = endpoint.broker_id, self._clock.boot()
        try:
            values = await self._admin.runtime_configuration(broker)
            self._known[broker] = (endpoint.start_timestamp, values, now)
            self._report_unusable(broker)
        except AdminApiError as error:
            known = self._known.get(broker)
            if known is not None and (known[0] != endpoint.start_timestamp or now - known[2] > KEPT_SECONDS):
                del self._known[broker]
            self.errors[broker] = str(error)
            _log.info("broker settings could not be read", broker=broker, error=str(error))

    def unusable(self, broker: str) -> dict[str, CodecError]:
        """Return the settings of a broker that are not a number, by key. They are used as if it did not show them."""
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
                _log.warning("broker setting is unusable", broker=broker, code=error.code, error=str(error))
        self._reported[broker] = frozenset(unusable)

    def sheds(self, broker: str) -> bool | None:
        """Whether this broker's own shedding is on; None when it could not be asked."""
        values = self._values(broker)
        if values is None:
            return None
        return _true(values, "loadBalancerEnabled") and _true(values, "loadBalancerSheddingEnabled")

    def splits(self, broker: str) -> bool | None:
        """Whether this broker's own automatic split is on; None when it could not be asked."""
        values = self._values(broker)
        return None if values is None else _true(values, "loadBalancerAutoBundleSplitEnabled")

    def unloads_splits(self, broker: str) -> bool:
        """Whether this broker, as far as is known, unloads what it splits by itself: its children may move then."""
        values = self._values(broker)
        return values is not None and _true(values, "loadBalancerAutoUnloadSplitBundlesEnabled")

    def brokers_split(self, brokers: Iterable[str]) -> bool:
        """Whether some of these brokers may split bundles by itself; one that could not be asked counts as such.

        In the modular load manager only their leader does, and any of them may be that (`BundleSplitterTask`); in the
        extensible one each broker splits its own (`SplitScheduler`).
        """
        return any(self.splits(broker) is not False for broker in brokers)

    def reports_frozen(self, broker: str) -> bool | None:
        """Whether this broker never refreshes its report (`loadBalancerEnabled=false`)."""
        values = self._values(broker)
        return None if values is None else not _true(values, "loadBalancerEnabled")

    def adoptable(self) -> Mapping[str, str]:
        """Return the settings to adopt: for each key the value of most brokers, and of `STOCK` that of the slowest.

        One broker's values would be enough for dynamic settings, but that broker may be wrong.
        """
        return {**self._common, **self._slowest()}

    def _most_common(self) -> dict[str, str]:
        """Return the value of each key that most brokers show; where as many show another one, that of the first ID."""
        brokers = [values for _, (_, values, _) in sorted(self._known.items())]
        # One broker may show any keys. Of a key that fewer than half show, "none" is the most common value.
        shown = Counter(key for values in brokers for key in values)
        counted = {
            key: Counter(values.get(key) for values in brokers)
            for key, count in shown.items()
            if 2 * count >= len(brokers)
        }
        return {key: value for key, counts in counted.items() if (value := counts.most_common(1)[0][0]) is not None}

    def _slowest(self) -> dict[str, str]:
        """What of `STOCK` some broker shows, at the largest value, but the smallest number of bundles (of which 0 or
        less means all); a broker that shows none runs with the stock one."""
        found: dict[str, str] = {}
        for key, stock in STOCK.items():
            shown = [(self._values(broker) or {}).get(key, "") for broker in self._brokers]
            # Most brokers show the same: 1,000 texts would take a tenth of a second.
            values = {text: _integer(key, text) for text in set(shown)}
            read = [value for text in shown if (value := values[text]) is not None]
            if read:
                every = read if len(read) == len(shown) else [*read, stock]
                limited = [value for value in every if value > 0]
                found[key] = str(min(limited, default=0) if key == REPORTED_BUNDLES else max(every))
        return found

    def values(self, broker: str) -> Mapping[str, str] | None:
        """Everything this broker runs with; None when it could not be asked."""
        return self._values(broker)

    def _values(self, broker: str) -> dict[str, str] | None:
        known = self._known.get(broker)
        return None if known is None else known[1]


def _integer(key: str, text: str) -> int | None:
    with suppress(CodecError):
        return integer(text, field=key, lowest=-MAX_INT, highest=MAX_INT)
    return None


def _true(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "true").strip().lower() == "true"


def configuration_store(values: Mapping[str, str]) -> str:
    """Where a broker with these settings has policies; "" when it does not show it."""
    return _first(values, _CONFIGURATION)


def _first(values: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((found for key in keys if (found := values.get(key, "").strip())), "")


def _other_store(values: Mapping[str, str], metadata: str, given: str | None) -> bool:
    """Whether our configuration store is certainly not this broker's.

    A host has many names, so hosts prove nothing where ours is written out; one store cannot be the broker's two.
    """
    try:
        hosts, chroot = parse_store_url(configuration_store(values))
        local, _ = parse_store_url(_first(values, _METADATA))
        _, ours = parse_store_url(given or metadata)
    except ConfigError:  # no ZooKeeper
        return False
    return chroot != ours or (given is None and not set(hosts.split(",")) & set(local.split(",")))


def _reached(values: Mapping[str, str], metadata: str) -> str:
    """This broker's configuration store, by our own names of the hosts where it is in the same ZooKeeper as the
    `metadata` store: the broker's names may mean nothing here."""
    hosts, chroot = parse_store_url(configuration_store(values))
    local, _ = parse_store_url(_first(values, _METADATA))
    if set(hosts.split(",")) & set(local.split(",")):
        hosts, _ = parse_store_url(metadata)
    return f"zk:{hosts}{chroot}"
