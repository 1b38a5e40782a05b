"""Owner of a bundle with either load manager: znodes (modular), or the ownership channel (extensible).

The brokers' setting `loadManagerServiceUnitStateTableViewClassName` selects the variant of the channel. If brokers
have different values, each group of them keeps ownership in its own place, and neither place is complete. Then the
metadata store is read, because that needs no second process, and its reads are never outdated.
`VariantReading.obstacle` then explains why no move may rely on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bundlekeel.model.channel_states import ServiceUnit, UnitState, owner_of
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.ports import (
    BrokerEndpoint,
    Channel,
    ChannelVariant,
    ChannelView,
    LoadSource,
    Owner,
    Ownership,
    RawClusterView,
)
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig

VARIANT_KEY: Final = "loadManagerServiceUnitStateTableViewClassName"
SYNCER_KEY: Final = "loadBalancerServiceUnitTableViewSyncer"
EXTENSIBLE: Final = "ExtensibleLoadManagerImpl"
# Load managers of clusters in which some brokers have an ownership channel.
WITH_CHANNEL: Final = ("extensible", "mixed")
PATIENCE_SECONDS: Final = 1.0


def serving(unit: ServiceUnit | None) -> Owner | None:
    """Return the broker that serves a bundle, according to its entry; None: no broker owns it.

    `disabled` is set while the bundle is in transit.

    Releasing and Splitting: the source, which serves until it has closed the bundle's topics. Assigning: the
    destination, where clients are sent to wait (in a transfer the source has closed the topics by then).
    """
    owner = owner_of(unit)
    if unit is None or owner is None:
        return None
    broker = unit.source if unit.state is UnitState.RELEASING else owner.broker_id
    return Owner(broker_id=broker, disabled=owner.in_transit)


class ChannelOwnership:
    """`ports.Ownership` over the ownership channel."""

    def __init__(self, channel: Channel, source: LoadSource) -> None:
        self._channel = channel
        self._source = source

    async def owner(self, bundle: str) -> Owner | None:
        """Return the owner in the bundle's channel entry, with its registered addresses; None: no broker owns it.
        Raises StoreError if the entry cannot be read."""
        owner = serving(await self._channel.unit(bundle))
        if owner is None:
            return None
        endpoint = (await _newest(self._source)).endpoints.get(owner.broker_id)
        if endpoint is None:  # the broker has left; the channel watch reports that
            return owner
        return replace(owner, web_url=endpoint.web_url, service_url=endpoint.service_url, listeners=endpoint.listeners)


class OwnershipByMode:
    """`ports.Ownership`: the modular load manager's znodes or the channel, by the newest view's mode.

    In a mixed cluster a znode takes precedence, because the session of a live broker holds it.
    """

    def __init__(self, modular: Ownership, channel: Ownership, source: LoadSource) -> None:
        self._modular = modular
        self._channel = channel
        self._source = source

    async def owner(self, bundle: str) -> Owner | None:
        """Return the current owner.

        Raises StoreError if the owner cannot be read, or before the first view of the cluster, and CodecError if the
        owner's record is malformed.
        """
        mode = (await _newest(self._source)).mode
        if mode == "extensible":
            return await self._channel.owner(bundle)
        owner = await self._modular.owner(bundle)
        return await self._channel.owner(bundle) if owner is None and mode == "mixed" else owner


async def _newest(source: LoadSource) -> RawClusterView:
    try:
        return await source.picture()
    except SnapshotError as error:
        raise StoreError(f"which load manager the brokers run is not known yet: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantReading:
    """Where the brokers store the ownership channel, from their settings. `variant` None: no broker has reported it.

    `obstacle`: why moves must not rely on the channel; "": they can.
    """

    variant: ChannelVariant | None = None
    obstacle: str = ""


def read_variant(config: BrokerConfig, brokers: Iterable[str]) -> VariantReading:
    """Return where these brokers store the ownership channel. Brokers that could not be queried do not count."""
    settings = {broker: values for broker in sorted(brokers) if (values := config.values(broker)) is not None}
    variants = {broker: _variant(values) for broker, values in settings.items()}
    places = set(variants.values())
    if not places:
        return VariantReading()
    if len(places) > 1:
        texts = ", ".join(f"{broker}: {_WORDS[variant]}" for broker, variant in variants.items())
        return VariantReading(
            variant="metadata_store", obstacle=f"brokers keep the ownership channel in different places ({texts})"
        )
    syncers = {broker: syncer for broker, values in settings.items() if (syncer := _syncer(values))}
    obstacle = ""
    if syncers:
        broker, syncer = next(iter(syncers.items()))
        obstacle = f"the ownership channel is being migrated: {SYNCER_KEY}={syncer} at {broker}"
    return VariantReading(variant=places.pop(), obstacle=obstacle)


_WORDS: Final[Mapping[ChannelVariant, str]] = {"system_topic": "system topic", "metadata_store": "metadata store"}


def _variant(values: Mapping[str, str]) -> ChannelVariant:
    # Releases before 4.0 have no such key, and only the system topic.
    return "metadata_store" if "MetadataStore" in values.get(VARIANT_KEY, "") else "system_topic"


def _syncer(values: Mapping[str, str]) -> str:
    syncer = values.get(SYNCER_KEY, "").strip()
    return "" if syncer in ("", "None", "null") else syncer


def channel_brokers(picture: RawClusterView) -> dict[str, BrokerEndpoint]:
    """Return the brokers with the extensible load manager: only these use the ownership channel."""
    if picture.mode == "mixed":
        return {b: item for b, item in picture.endpoints.items() if item.load_manager.endswith(EXTENSIBLE)}
    return dict(picture.endpoints) if picture.mode in WITH_CHANNEL else {}


class ChannelByVariant:
    """`ports.Channel` of the variant that the brokers use. Nothing is read before a broker with the extensible load
    manager is registered.

    `makers`: functions that create the channel of each variant; each switch creates a new one. `service_url`: replaces
    the addresses that the brokers registered; without it, `prefer_tls` selects their encrypted addresses.
    """

    def __init__(
        self,
        makers: Mapping[ChannelVariant, Callable[[], Channel]],
        config: BrokerConfig,
        *,
        service_url: str | None = None,
        prefer_tls: bool = False,
    ) -> None:
        self._makers = makers
        self._config = config
        self._service_url = service_url
        self._prefer_tls = prefer_tls
        self._channel: Channel | None = None
        self._started_with: tuple[str, ...] | None = None
        self._variant: ChannelVariant | None = None
        # A new channel counts generations from 0. Add the last generation before, so that callers see an increasing
        # number.
        self._before = self._newest = 0
        self._turned = asyncio.Event()
        self._following = asyncio.Lock()
        self._asking: asyncio.Task[None] | None = None
        self.reading = VariantReading()

    @property
    def on(self) -> bool:
        """Whether a channel is followed."""
        return self._channel is not None

    async def follow(self, picture: RawClusterView) -> None:
        """Start, switch or stop the channel according to the brokers in this view and their settings."""
        async with self._following:
            brokers = channel_brokers(picture)
            if not brokers:
                self.reading = VariantReading()
                await self._stop()
                return
            await self._ask(picture)
            reading = read_variant(self._config, brokers)
            if reading.variant is None:  # no broker could be queried: the last variant stays
                return
            self.reading = reading
            if reading.variant != self._variant:
                await self._stop()
                self._channel, self._variant = self._makers[reading.variant](), reading.variant
                self._turn()
            registered = {item.client_url(tls=self._prefer_tls) for item in brokers.values()} - {""}
            urls = (self._service_url,) if self._service_url else tuple(sorted(registered))
            if self._channel is not None and urls != self._started_with:
                self._started_with = urls
                await self._channel.start(urls)

    async def _ask(self, picture: RawClusterView) -> None:
        """Read the brokers' settings. Do not wait for a broker that hangs: its last settings stay valid."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._config.refresh(picture.endpoints))
        done, _ = await asyncio.wait({self._asking}, timeout=PATIENCE_SECONDS)
        for task in done:
            task.result()

    async def start(self, service_urls: Sequence[str] = ()) -> None:
        """Do nothing: `follow` starts the channel."""

    async def view(self) -> ChannelView:
        """See `Channel.view`. Also raises SnapshotError while no channel is followed."""
        if self._channel is None:
            raise SnapshotError(self._why_off())
        view = await self._channel.view()
        self._newest = self._before + view.generation
        return replace(view, generation=self._newest)

    async def unit(self, bundle: str) -> ServiceUnit | None:
        """See `Channel.unit`. Also raises StoreError while no channel is followed."""
        if self._channel is None:
            raise StoreError(self._why_off())
        return await self._channel.unit(bundle)

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """See `Channel.wait_changed`. A switch to another variant counts as a change."""
        channel = self._channel
        if channel is not None:
            return await channel.wait_changed(generation - self._before, timeout)
        try:
            async with asyncio.timeout(timeout):
                await self._turned.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop following the channel."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        async with self._following:
            await self._stop()

    def _why_off(self) -> str:
        errors = "; ".join(f"{broker}: {error}" for broker, error in sorted(self._config.errors.items()))
        return f"no ownership channel is followed{f' ({errors})' if errors else ''}"

    async def _stop(self) -> None:
        channel, self._channel, self._variant, self._started_with = self._channel, None, None, None
        if channel is not None:
            self._before = self._newest
            self._turn()
            await channel.close()

    def _turn(self) -> None:
        self._turned.set()
        self._turned = asyncio.Event()
